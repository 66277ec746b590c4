// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	"github.com/sextant-node/sextant/test/fakeapi"
)

// running puts pods at the API server whose containers run and are not ready yet.
func (h *home) running(pods int) []*v1.Pod {
	h.t.Helper()
	var all []*v1.Pod
	h.mu.Lock()
	for i := range pods {
		p := h.cluster.Put(spec(fmt.Sprintf("web%d", i), fmt.Sprintf("u%d", i)))
		data, err := p.Marshal()
		if err != nil {
			h.t.Fatal(err)
		}
		h.pods[string(p.UID)] = &testPod{
			state: &podworkerv1.PodState{
				Uid: string(p.UID), Namespace: p.Namespace, Name: p.Name, Pod: data,
				Lifecycle: podworkerv1.Lifecycle_LIFECYCLE_SYNCING, AdmittedAt: timestamppb.Now(),
			},
			record: h.container(p, "c-"+string(p.UID), runtimeapi.ContainerState_CONTAINER_RUNNING, 0),
		}
		all = append(all, p)
	}
	h.mu.Unlock()
	for _, s := range []house.Service{house.Config, house.PodWorker, house.Pleg, house.Prober} {
		h.refresh(s)
	}
	h.eventually("all run", func() bool {
		return !slices.ContainsFunc(h.cluster.Pods(), func(p *v1.Pod) bool { return p.Status.Phase != v1.PodRunning })
	})
	h.quiet()
	return all
}

// ready makes pods ready at once, and says when.
func (h *home) ready(pods []*v1.Pod) time.Time {
	h.mu.Lock()
	for _, p := range pods {
		h.pods[string(p.UID)].verdicts = &proberv1.PodVerdicts{Uid: string(p.UID), Verdicts: []*proberv1.Verdict{{
			Container: "c", ContainerId: "c-" + string(p.UID), Kind: proberv1.ProbeKind_PROBE_KIND_READINESS, Result: proberv1.Result_RESULT_SUCCESS,
		}}}
	}
	h.mu.Unlock()
	at := time.Now()
	h.refresh(house.Prober)
	return at
}

// BenchmarkReadyToAPI: 250 pods become ready within 5 s, and the API server takes
// 20 ms for each request. How long from a verdict to the end of the request that
// tells it.
func BenchmarkReadyToAPI(b *testing.B) {
	const pods, batches, within, rtt = 250, 50, 5 * time.Second, 20 * time.Millisecond
	for b.Loop() {
		h := newHome(b, nil)
		h.cluster.Hook(func(ctx context.Context, _ fakeapi.Request) error {
			select {
			case <-ctx.Done():
			case <-time.After(rtt):
			}
			return nil
		})
		all := h.running(pods)
		before := len(h.cluster.Requests("", ""))
		became := map[string]time.Time{}
		tick := time.NewTicker(within / batches)
		for batch := range slices.Chunk(all, pods/batches) {
			<-tick.C
			at := h.ready(batch)
			for _, p := range batch {
				became[p.Namespace+"/"+p.Name] = at
			}
		}
		tick.Stop()
		h.eventually("all are ready", func() bool {
			return !slices.ContainsFunc(h.cluster.Pods(), func(p *v1.Pod) bool { return !isReady(p) })
		})
		h.quiet()
		var took []time.Duration
		for _, r := range h.cluster.Requests("", "")[before:] {
			if r.Resource == "pods/status" {
				took = append(took, r.At.Add(rtt).Sub(became[r.Key]))
			}
		}
		slices.Sort(took)
		if len(took) == 0 {
			b.Fatal("nothing was written")
		}
		b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
		b.ReportMetric(float64(len(took))/pods, "writes/ready")
		b.ReportMetric(float64(len(h.cluster.Requests("get", "pods"))), "GETs")
	}
}

// TestWritesOfAStart: an ordinary pod that is taken up, gets its sandbox, runs and
// becomes ready costs at most three writes, however the steps fall, and no read.
func TestWritesOfAStart(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	h.eventually("the node is ready", func() bool { return nodeReady(h.cluster.Node("n1")) })
	const pods = 10
	for i := range pods {
		p := h.cluster.Put(spec(fmt.Sprintf("web%d", i), fmt.Sprintf("u%d", i)))
		h.refresh(house.Config)
		waits := []*podworkerv1.ContainerWait{{Container: "c", Reason: "ContainerCreating"}}
		h.work(p, func(t *testPod) { t.state.Waits = waits })
		h.quiet() // every step is seen by itself
		full := h.container(p, "c-"+string(p.UID), runtimeapi.ContainerState_CONTAINER_RUNNING, 0)
		sandbox := h.container(p, "c-"+string(p.UID), runtimeapi.ContainerState_CONTAINER_RUNNING, 0)
		sandbox.Containers, sandbox.SandboxOf = nil, nil
		created := h.container(p, "c-"+string(p.UID), runtimeapi.ContainerState_CONTAINER_CREATED, 0)
		for _, record := range []*plegv1.PodRecord{sandbox, created} {
			h.work(p, func(t *testPod) { t.record = record })
			if i%2 == 0 {
				h.quiet()
			}
		}
		h.work(p, func(t *testPod) { t.record, t.state.Waits = full, nil })
		h.ready([]*v1.Pod{p})
		h.eventually("it is ready", func() bool { return isReady(h.cluster.Pod("default", p.Name)) })
	}
	h.quiet()
	count := map[string]int{}
	for _, r := range h.cluster.Requests("", "") {
		if strings.HasPrefix(r.Resource, "pods") {
			count[r.Verb+" "+r.Key]++
		}
	}
	for i := range pods {
		key := fmt.Sprintf("default/web%d", i)
		if n := count["patch "+key]; n < 1 || n > 3 {
			t.Errorf("%s: %d writes", key, n)
		}
		if n := count["get "+key]; n > 0 {
			t.Errorf("%s was read %d times", key, n)
		}
	}
}
