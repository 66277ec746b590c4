// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/measure"
)

// TestPodsAreMeasured takes a pod through its life and reads what it leaves in
// the metrics.
func TestPodsAreMeasured(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	const rounds = "kubelet_pod_worker_duration_seconds"
	measure.Expect(t, n.metrics, map[string]float64{
		`kubelet_working_pods{config="desired",lifecycle="sync",static=""}`: 0,
		`kubelet_restarted_pods_total{static="true"}`:                       0,
		"kubelet_orphaned_runtime_pods_total":                               0,
		"kubelet_managed_ephemeral_containers":                              0,
		"kubelet_orphan_pod_cleaned_volumes":                                0,
		rounds + `{operation_type="create"}`:                                math.NaN(),
	})
	p := web("a")
	p.Spec.InitContainers = []v1.Container{{Name: "first", Image: "fake/sleep", Command: []string{"sh", "-c", "sleep 3; exit 0"}}}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "look", Image: "fake/sleep"}}}
	n.desire(p)
	n.pass("running", time.Second, func() bool { return n.running("a") && n.settled(p.UID) })
	// A round is measured at its end, after what it did can be seen.
	measured := func(operation string) {
		n.until("measured", func() bool { return measure.Value(t, n.metrics, rounds+`{operation_type="`+operation+`"}`) >= 1 })
	}
	measured("create")
	measure.Expect(t, n.metrics, map[string]float64{
		`kubelet_working_pods{config="desired",lifecycle="sync",static=""}`: 1,
		`kubelet_active_pods{static=""}`:                                    1, `kubelet_active_pods{static="true"}`: 0,
		"kubelet_managed_ephemeral_containers":      1,
		"kubelet_containers_per_pod_count":          1,
		"kubelet_pod_worker_start_duration_seconds": 1,
		rounds + `{operation_type="create"}`:        1,
		`kubelet_terminated_containers_total{container_type="init_container",exit_code="0",reason="Completed"}`: 1,
	})
	if sum := measure.Sum(t, n.metrics, "kubelet_containers_per_pod_count"); sum != 1 {
		t.Errorf("%v containers, init containers do not count", sum)
	}
	n.desire(n.deleted(p, 30))
	n.pass("released", time.Second, func() bool { return n.lifecycle(p.UID, released) })
	measured("update")
	measure.Expect(t, n.metrics, map[string]float64{
		`kubelet_working_pods{config="desired",lifecycle="terminated",static=""}`: 1,
		`kubelet_active_pods{static=""}`:                                          0,
		rounds + `{operation_type="update"}`:                                      1,
	})
	n.forget(p.UID)
	n.until("forgotten", func() bool { return n.state(p.UID) == nil })
	measured("terminated")
}

// TestPodsThatEndThemselvesAreMeasured: their stopping is a sync.
func TestPodsThatEndThemselvesAreMeasured(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a")
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Spec.Containers[0].Command = []string{"sh", "-c", "sleep 2; exit 0"}
	n.desire(p)
	n.pass("released", time.Second, func() bool { return n.lifecycle(p.UID, released) })
	const rounds = "kubelet_pod_worker_duration_seconds"
	n.until("measured", func() bool { return measure.Value(t, n.metrics, rounds+`{operation_type="terminated"}`) >= 1 })
	measure.Expect(t, n.metrics, map[string]float64{rounds + `{operation_type="create"}`: 1, rounds + `{operation_type="kill"}`: math.NaN()})
	// What a start does may take two rounds, of which the second is a sync, too.
	if syncs := measure.Value(t, n.metrics, rounds+`{operation_type="sync"}`); syncs != 1 && syncs != 2 {
		t.Errorf("%v rounds of sync", syncs)
	}
}

// TestRefusedPodsAreNoWork: a pod that was refused is in no count of work.
func TestRefusedPodsAreNoWork(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.answer = func(*v1.Pod, bool) *resourcev1.AdmitResponse {
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_REJECTED, Reason: "NodeAffinity"}
	}
	n.live()
	p := web("a")
	n.desire(p)
	n.until("refused", func() bool { return n.lifecycle(p.UID, podworkerv1.Lifecycle_LIFECYCLE_REJECTED) })
	measure.Expect(t, n.metrics, map[string]float64{
		`kubelet_working_pods{config="desired",lifecycle="terminated",static=""}`: 0,
		"kubelet_pod_worker_start_duration_seconds":                               0,
		"kubelet_containers_per_pod_count":                                        0,
		`kubelet_pod_worker_duration_seconds{operation_type="create"}`:            math.NaN(),
	})
}

// TestARoundIsAsLongAsItsActions: a slow runtime shows in the worker's duration,
// waking for nothing does not.
func TestARoundIsAsLongAsItsActions(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	stall := n.rt.Stall(fakecri.Match{Method: "RunPodSandbox"})
	p := web("a")
	n.desire(p)
	if err := stall.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	n.clock.Step(7 * time.Second)
	stall.Release()
	n.until("running", func() bool { return n.running("a") && n.settled(p.UID) })
	// A start may take two rounds.
	measured := func(of func(testing.TB, prometheus.Gatherer, string) float64) (sum float64) {
		for _, operation := range []string{"create", "sync"} {
			if value := of(t, n.metrics, `kubelet_pod_worker_duration_seconds{operation_type="`+operation+`"}`); !math.IsNaN(value) {
				sum += value
			}
		}
		return sum
	}
	n.until("measured", func() bool { return measured(measure.Sum) >= 7 })
	n.rest()
	rounds := measured(measure.Value)
	for range 5 {
		n.loop.consider(p.UID)
	}
	n.rest()
	if now := measured(measure.Value); now != rounds || !n.settled(p.UID) {
		t.Errorf("%v rounds, %v before it was woken for nothing", now, rounds)
	}
}

// TestDeathsOfBeforeAreNotCountedAgain: a podworker that starts again finds the
// dead its predecessor counted.
func TestDeathsOfBeforeAreNotCountedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a")
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Spec.Containers[0].Command = []string{"sh", "-c", "sleep 2; exit 3"}
	n.desire(p)
	const dead = `kubelet_terminated_containers_total{container_type="container",exit_code="3",reason="Error"}`
	n.pass("dead", time.Second, func() bool { return measure.Value(t, n.metrics, dead) == 1 })
	n.die()
	n.clock.Step(time.Second)
	n.live()
	n.until("taken up", func() bool { return n.lifecycle(p.UID, released) })
	measure.Expect(t, n.metrics, map[string]float64{dead: math.NaN()})
}

// TestOrphansAreCounted: pods nobody wants, in the runtime and on the disk.
func TestOrphansAreCounted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.must(os.MkdirAll(filepath.Join(n.dir, "kubelet/pods/uid-x/containers/web"), 0o750))
	n.live()
	n.until("clean", func() bool {
		left, err := filepath.Glob(filepath.Join(n.dir, "kubelet/pods/*"))
		n.must(err)
		return len(left) == 0
	})
	n.pass("the next search", 10*time.Second, func() bool {
		return measure.Value(t, n.metrics, "kubelet_orphan_pod_cleaned_volumes") == 1
	})
	measure.Expect(t, n.metrics, map[string]float64{
		"kubelet_orphan_pod_cleaned_volumes_errors": 0, "kubelet_orphaned_runtime_pods_total": 0, // the runtime had nothing of it
	})
	n.pass("the one after", 10*time.Second, func() bool {
		return measure.Value(t, n.metrics, "kubelet_orphan_pod_cleaned_volumes") == 0
	})

	p := web("a")
	n.desire(p)
	n.pass("running", time.Second, func() bool { return n.running("a") && n.settled(p.UID) })
	n.die()
	n.must(os.RemoveAll(filepath.Join(n.dir, "state")))
	n.forget(p.UID)
	n.live()
	n.pass("ended", time.Second, func() bool { return !n.running("a") })
	measure.Expect(t, n.metrics, map[string]float64{"kubelet_orphaned_runtime_pods_total": 1})
}

// TestFailedActionsAreCounted by what they were.
func TestFailedActionsAreCounted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	n.rt.Fail(fakecri.Match{Method: "RunPodSandbox"}, 1, status.Error(codes.Unavailable, "not now"))
	p := web("a")
	n.desire(p)
	n.pass("running", time.Second, func() bool { return n.running("a") && n.settled(p.UID) })
	measure.Expect(t, n.metrics, map[string]float64{
		`sextant_podworker_actions_total{kind="sandbox"}`: 2, `sextant_podworker_action_failures_total{kind="sandbox"}`: 1,
		"kubelet_started_pods_total": 2, "kubelet_started_pods_errors_total": 1,
	})
}
