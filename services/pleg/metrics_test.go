// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"context"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/services/pleg"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/measure"
)

// TestMetricsOfEvents: what runs is counted as it is now, though no relist came
// by; events and readings are measured.
func TestMetricsOfEvents(t *testing.T) {
	began := time.Now()
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: hour, RelistWithEvents: hour, Status: hour})
	n.eventually("complete", n.pods.Complete)
	measure.Expect(t, n.kit, map[string]float64{
		"kubelet_running_pods": 0, `kubelet_running_containers{container_state="running"}`: 0,
		"kubelet_pleg_discard_events": 0, "kubelet_evented_pleg_connection_latency_seconds": 0,
		`kubelet_cri_losing_support{version="1.37.0"}`: math.NaN(),
	})
	n.eventsFlow()
	a, b := n.run("a"), n.run("b")
	n.eventually("running", func() bool { return n.running("a")() && n.running("b")() })
	n.runtime.Exit(a, 3)
	n.eventually("exited", n.exited("a", 3))
	measure.Expect(t, n.kit, map[string]float64{
		"kubelet_running_pods": 2, `kubelet_running_containers{container_state="running"}`: 1,
		`kubelet_running_containers{container_state="exited"}`:  1,
		`kubelet_running_containers{container_state="created"}`: 0,
		"kubelet_evented_pleg_connection_success_count":         1,
		"kubelet_evented_pleg_connection_error_count":           0,
	})
	for _, series := range []string{"kubelet_evented_pleg_connection_latency_seconds", "kubelet_pleg_pod_relist_duration_seconds"} {
		if measure.Value(t, n.kit, series) < 3 || measure.Sum(t, n.kit, series) > time.Since(began).Seconds()*100 {
			t.Errorf("%s: %v in %v s", series, measure.Value(t, n.kit, series), measure.Sum(t, n.kit, series))
		}
	}
	if seen := measure.Value(t, n.kit, "kubelet_pleg_last_seen_seconds"); seen < float64(began.Unix()) {
		t.Errorf("last seen at %v", seen)
	}
	for _, s := range n.runtime.Sandboxes() {
		n.runtime.Forget(s.GetId())
	}
	n.runtime.Forget(a)
	n.runtime.Forget(b)
	n.refresh("a")
	n.refresh("b")
	measure.Expect(t, n.kit, map[string]float64{"kubelet_running_pods": 0, `kubelet_running_containers{container_state="running"}`: 0})
}

// TestMetricsOfRelists: without events there is a relist each period, and a
// runtime without RuntimeConfig is told of.
func TestMetricsOfRelists(t *testing.T) {
	n := start(t, fakecri.Containerd16, pleg.Config{Relist: 10 * time.Millisecond, Status: hour})
	n.run("a")
	n.eventually("running", n.running("a"))
	if got := measure.Value(t, n.kit, "kubelet_pleg_relist_duration_seconds"); got < 1 {
		t.Errorf("%v relists", got)
	}
	if err := n.runtime.WaitCall(n.ctx, fakecri.Match{Method: "ListContainers"}, 20); err != nil {
		t.Fatal(err)
	}
	if got := measure.Value(t, n.kit, "kubelet_pleg_relist_interval_seconds"); got < 3 {
		t.Errorf("%v intervals", got)
	}
	measure.Expect(t, n.kit, map[string]float64{`kubelet_cri_losing_support{version="1.37.0"}`: 1})
}

// nameless leaves the pod out of every event.
type nameless struct{ grpc.ClientConnInterface }

func (c nameless) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	return namelessStream{stream}, err
}

type namelessStream struct{ grpc.ClientStream }

func (s namelessStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if event, ok := m.(*runtimeapi.ContainerEventResponse); ok {
		event.PodSandboxStatus = nil
	}
	return err
}

// TestAnEventOfNoPod is counted as discarded, and answered with a relist.
func TestAnEventOfNoPod(t *testing.T) {
	runtime := fakecri.Start(t, fakecri.Config{Images: []fakecri.Image{{Ref: "fake/sleep"}}})
	n := startThrough(t, runtime, nameless{runtime.Conn(t)}, pleg.Config{Relist: hour, RelistWithEvents: hour, Status: hour})
	n.eventually("complete", n.pods.Complete)
	n.eventsFlow()
	n.run("a")
	n.eventually("running", n.running("a"))
	if got := measure.Value(t, n.kit, "kubelet_pleg_discard_events"); got < 1 {
		t.Errorf("%v events discarded", got)
	}
}
