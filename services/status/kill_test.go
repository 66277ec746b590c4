// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/house"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// killedAt runs act with a fault at a point, kills status there, and starts it again.
func (h *home) killedAt(point string, act func()) {
	h.t.Helper()
	h.arm(point)
	act()
	h.quietly(func() bool { return fault.Caught(point) > 0 })
	h.stopStatus()
	h.arm("")
	h.startStatus()
}

// arm makes status stop at a point; empty for none.
func (h *home) arm(point string) {
	h.t.Helper()
	text := ""
	if point != "" {
		text = point + "=pause"
	}
	if err := fault.Set(text); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = fault.Set("") })
}

// writes counts what was written of a kind.
func (h *home) writes(verb, resource, key string) (n int) {
	for _, r := range h.cluster.Requests(verb, resource) {
		if r.Key == key {
			n++
		}
	}
	return n
}

// TestKillAnywhere kills status at each point before something is written, and starts it
// again: it is written then, once. Faults are of the process, so no other test runs beside.
func TestKillAnywhere(t *testing.T) {
	t.Run("status.register", func(t *testing.T) {
		if err := fault.Set("status.register=pause"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fault.Set("") })
		h := newHome(t, nil)
		h.killedAt("status.register", func() { h.svc.looks.Send() })
		h.eventually("the node is ready", func() bool { return nodeReady(h.cluster.Node("n1")) })
		h.quiet()
		if n := h.writes("create", "nodes", "n1"); n != 1 {
			t.Errorf("the Node was created %d times", n)
		}
	})
	t.Run("status.node", func(t *testing.T) {
		h := newHome(t, nil)
		h.eventually("the node is ready", func() bool { return nodeReady(h.cluster.Node("n1")) })
		h.quiet()
		uid, before := h.cluster.Node("n1").UID, h.writes("patch", "nodes/status", "n1")
		h.killedAt("status.node", func() {
			n := h.cluster.Node("n1")
			n.Status.Conditions[0].Status = v1.ConditionTrue
			h.cluster.PutNode("n1", n)
		})
		h.eventually("the condition is as it was", func() bool { return h.cluster.Node("n1").Status.Conditions[0].Status == v1.ConditionFalse })
		h.quiet()
		if n := h.writes("patch", "nodes/status", "n1") - before; n != 1 || h.cluster.Node("n1").UID != uid {
			t.Errorf("%d patches, the Node is another: %t", n, h.cluster.Node("n1").UID != uid)
		}
	})
	t.Run("status.write/patch", func(t *testing.T) {
		h := newHome(t, nil)
		p := h.cluster.Put(spec("web", "u1"))
		h.killedAt("status.write", func() { h.up(p) })
		h.eventually("the pod is ready", func() bool { return isReady(h.cluster.Pod("default", "web")) })
		h.quiet()
		said := map[string]int{} // what is seen first after a start may be told before the rest
		for _, r := range h.cluster.Requests("patch", "pods/status") {
			said[r.Body]++
		}
		if n := h.writes("patch", "pods/status", "default/web"); n > 2 || len(said) != n {
			t.Errorf("%d patches: %v", n, said)
		}
	})
	t.Run("status.write/end", func(t *testing.T) {
		// The container is gone from the runtime when status is back: what its end was is
		// known of the status that was not sent alone.
		h := newHome(t, nil)
		p := h.cluster.Put(spec("job", "u1"))
		h.up(p)
		h.eventually("the pod is ready", func() bool { return isReady(h.cluster.Pod("default", "job")) })
		h.quiet()
		h.killedAt("status.write", func() { h.ended(p, 3) })
		h.work(p, func(t *testPod) { t.record = nil })
		h.eventually("the end is told", func() bool { return h.cluster.Pod("default", "job").Status.Phase == v1.PodFailed })
		h.quiet()
		if end := h.cluster.Pod("default", "job").Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 {
			t.Errorf("end %+v", end)
		}
	})
	t.Run("status.write/delete", func(t *testing.T) {
		h := newHome(t, nil)
		p := h.cluster.Put(spec("web", "u1"))
		h.up(p)
		h.eventually("the pod is ready", func() bool { return isReady(h.cluster.Pod("default", "web")) })
		p = h.cluster.Pod("default", "web")
		p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		h.cluster.Put(p)
		record := h.container(p, "c-u1", runtimeapi.ContainerState_CONTAINER_EXITED, 0)
		h.work(p, func(t *testPod) {
			t.record, t.verdicts = record, nil
			t.state.Lifecycle = podworkerv1.Lifecycle_LIFECYCLE_TERMINATED
		})
		h.eventually("the end is told", func() bool { return h.cluster.Pod("default", "web").Status.Phase == v1.PodSucceeded })
		h.quiet()
		h.killedAt("status.write", func() {
			h.work(p, func(t *testPod) {
				t.record = nil
				t.state.Lifecycle = podworkerv1.Lifecycle_LIFECYCLE_RELEASED
			})
		})
		h.eventually("the pod is deleted", func() bool { return h.cluster.Pod("default", "web") == nil })
		h.quiet()
		if n := h.writes("delete", "pods", "default/web"); n != 1 {
			t.Errorf("%d deletes", n)
		}
	})
	t.Run("status.write/mirror", func(t *testing.T) {
		h := newHome(t, nil)
		h.eventually("the node is ready", func() bool { return nodeReady(h.cluster.Node("n1")) })
		h.killedAt("status.write", func() { h.up(h.manifest("v1")) })
		h.eventually("the mirror is ready", func() bool { return isReady(h.cluster.Pod("default", "job-n1")) })
		h.quiet()
		if n := h.writes("create", "pods", "default/job-n1"); n != 1 {
			t.Errorf("%d mirrors were made", n)
		}
	})
	t.Run("status.event", func(t *testing.T) {
		h := newHome(t, nil)
		p := h.cluster.Put(spec("web", "u1"))
		h.eventually("the node is ready", func() bool { return nodeReady(h.cluster.Node("n1")) })
		h.quiet()
		emit := func(reason string) {
			if err := h.neighbours[house.PodWorker].events.Emit(t.Context(), podEvent(p, reason)); err != nil {
				t.Fatal(err)
			}
		}
		emit("First")
		count := func(reason string) (n int32) {
			for _, e := range h.cluster.Events() {
				if e.Reason == reason && e.InvolvedObject.UID == "u1" {
					n += e.Count
				}
			}
			return n
		}
		h.eventually("the first is recorded", func() bool { return count("First") == 1 })
		h.killedAt("status.event", func() {
			for i := range 3 {
				emit(fmt.Sprint("E", i))
			}
		})
		h.eventually("the others are recorded", func() bool { return count("E0") == 1 && count("E1") == 1 && count("E2") == 1 })
		h.quiet()
		for _, reason := range []string{"First", "E0", "E1", "E2"} {
			if n := count(reason); n != 1 {
				t.Errorf("%s was recorded %d times", reason, n)
			}
		}
	})
}

// TestNewMachineKilledBeforeItRegisters: a new machine was not registered yet when status
// was killed. The Node there is of its name is still another machine's to it.
func TestNewMachineKilledBeforeItRegisters(t *testing.T) {
	if err := fault.Set("status.register=pause"); err != nil {
		t.Fatal(err)
	}
	h := newHome(t, nil)
	h.cluster.Away(true)
	h.arm("")
	h.eventually("a status without a Node", func() bool { return h.svc.node.last.get().Status != nil })
	h.stopStatus()
	devices := v1.ResourceList{"example.com/gpu": resource.MustParse("8")}
	h.cluster.PutNode("n1", &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "former"}, Status: v1.NodeStatus{Capacity: devices, Allocatable: devices.DeepCopy()},
	})
	h.cluster.Away(false)
	h.startStatus()
	h.eventually("the node is ready", func() bool { return nodeReady(h.cluster.Node("n1")) })
	if n := h.cluster.Node("n1").Status.Allocatable["example.com/gpu"]; !n.IsZero() {
		t.Errorf("the new machine offers %s GPUs of the old one", n.String())
	}
}
