package prober_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/services/prober"
)

// recorder is a runtime in which every command ends at once, well; it remembers
// when each was asked for.
type recorder struct {
	mu    sync.Mutex
	calls map[string][]time.Time // by container
	n     int
	full  chan struct{} // closed after enough calls
	most  int
}

func (r *recorder) Invoke(_ context.Context, _ string, args, _ any, _ ...grpc.CallOption) error {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	id := args.(*runtimeapi.ExecSyncRequest).GetContainerId()
	r.calls[id] = append(r.calls[id], now)
	if r.n++; r.n == r.most {
		close(r.full)
	}
	return nil
}

func (*recorder) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams")
}

// BenchmarkExecLateness: 200 pods, each with the same command for liveness and
// readiness, every second. How late a probe begins after its time, and how many
// commands that takes for a pod and a second.
func BenchmarkExecLateness(b *testing.B) {
	const pods, seconds = 200, 20
	for b.Loop() {
		r := newRig(b)
		r.stop()
		runtime := &recorder{calls: map[string][]time.Time{}, full: make(chan struct{}), most: pods * seconds}
		r.kit = r.Kit(house.Prober)
		if _, err := prober.New(prober.Config{}, prober.Deps{Kit: r.kit, Runtime: runtime}); err != nil {
			b.Fatal(err)
		}
		r.Start(r.kit)
		probe := &v1.Probe{
			ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
			PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1,
		}
		for i := range pods {
			uid := strconv.Itoa(i)
			r.want(uid, func(c *v1.Container) { c.LivenessProbe, c.ReadinessProbe = probe, probe })
			r.runs(uid, "c"+uid, 0)
		}
		<-runtime.full
		runtime.mu.Lock()
		var late []time.Duration
		commands, span := 0, time.Duration(0)
		for _, calls := range runtime.calls {
			earliest := time.Duration(0)
			var of []time.Duration
			for _, at := range calls {
				since := at.Sub(calls[0])
				off := since - since.Round(time.Second) // from the rhythm of the first
				earliest = min(earliest, off)
				of = append(of, off)
			}
			for _, off := range of {
				late = append(late, off-earliest)
			}
			commands += len(calls)
			span += calls[len(calls)-1].Sub(calls[0]) + time.Second
		}
		runtime.mu.Unlock()
		slices.Sort(late)
		b.ReportMetric(float64(late[len(late)/2])/1e6, "p50-ms-late")
		b.ReportMetric(float64(late[len(late)*99/100])/1e6, "p99-ms-late")
		b.ReportMetric(float64(commands)/span.Seconds(), "execs/pod/s")
	}
}
