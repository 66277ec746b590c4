package podworker

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
	"github.com/sextant-node/sextant/test/fakecri"
)

// TestKillAnywhereWhileStarting kills podworker at every point of a pod's start
// and starts it again on the same state: the pod comes up, with one sandbox and
// one instance of its container, which is the first.
func TestKillAnywhereWhileStarting(t *testing.T) {
	calls := func(n *node, method string) bool { return n.rt.Count(fakecri.Match{Method: method}) > 0 }
	for point, there := range map[string]func(n *node) bool{
		"podworker.admit":        func(n *node) bool { return n.flying("uid-a", "admit") },
		"podworker.admit.done":   func(n *node) bool { return len(n.admissions()) == 1 && n.flying("uid-a", "admit") },
		"podworker.journal":      func(n *node) bool { return len(n.admissions()) == 1 },
		"podworker.journaled":    func(n *node) bool { return len(n.admissions()) == 1 },
		"podworker.declare":      func(n *node) bool { return n.flying("uid-a", "declare") && n.sandboxesOf("a") == 1 },
		"podworker.declare.done": func(n *node) bool { return n.flying("uid-a", "declare") && len(n.volumes.Keys()) == 1 },
		"podworker.sandbox":      func(n *node) bool { return n.flying("uid-a", "sandbox") },
		"podworker.sandbox.done": func(n *node) bool { return n.flying("uid-a", "sandbox") && calls(n, "RunPodSandbox") },
		"podworker.pull":         func(n *node) bool { return n.flying("uid-a", "pull/web") && n.sandboxesOf("a") == 1 },
		"podworker.pull.done":    func(n *node) bool { return n.flying("uid-a", "pull/web") && calls(n, "PullImage") },
		"podworker.start":        func(n *node) bool { return n.flying("uid-a", "start/web") },
		"podworker.start.done":   func(n *node) bool { return n.flying("uid-a", "start/web") && n.running("a") },
	} {
		t.Run(point, func(t *testing.T) {
			n := newNode(t)
			n.must(fault.Set(point + "=pause"))
			t.Cleanup(func() { n.must(fault.Set("")) })
			n.live()
			p := web("a")
			n.desire(p)
			n.until("the point", func() bool { return there(n) })
			n.die()
			before := n.rt.Container("a", "web")
			n.must(fault.Set(""))
			n.live()
			// The former life's pull, which ends with its process only, may still write; then the pull is tried again.
			n.pass("up", time.Second, func() bool { return n.running("a") && n.settled(p.UID) })
			after := n.rt.Container("a", "web")
			if after.GetMetadata().GetAttempt() != 0 || before != nil && before.GetId() != after.GetId() {
				t.Errorf("instance %d (%s) runs, was %s", after.GetMetadata().GetAttempt(), after.GetId(), before.GetId())
			}
			if len(n.rt.Sandboxes()) != 1 || len(n.rt.Containers()) != 1 {
				t.Errorf("%d sandboxes and %d containers, want one of each", len(n.rt.Sandboxes()), len(n.rt.Containers()))
			}
		})
	}
}

// TestKillBetweenCreateAndStart: the container that was created and never
// started is made again under the same number.
func TestKillBetweenCreateAndStart(t *testing.T) {
	n := newNode(t)
	stall := n.rt.Stall(fakecri.Match{Method: "StartContainer"})
	n.live()
	p := web("a")
	n.desire(p)
	n.until("created", func() bool { return stall.Caught() == 1 })
	n.die()
	n.until("the call given up", func() bool { return n.rt.Count(fakecri.Match{Method: "StartContainer"}) == 1 })
	stall.Release()
	n.live()
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	if got := n.rt.Container("a", "web").GetMetadata().GetAttempt(); got != 0 || len(n.rt.Containers()) != 1 {
		t.Errorf("attempt %d of %d containers", got, len(n.rt.Containers()))
	}
}

// TestKillAnywhereWhileEnding kills podworker at every point of a pod's end: the
// pod goes, and nothing is left.
func TestKillAnywhereWhileEnding(t *testing.T) {
	for _, point := range []string{
		"journal", "journaled", "stop", "stop.done", "stop-sandbox", "stop-sandbox.done", "withdraw", "withdraw.done",
		"release", "release.done", "remove", "remove.done", "remove-sandbox", "remove-sandbox.done", "clean", "clean.done",
	} {
		t.Run(point, func(t *testing.T) {
			n := newNode(t)
			n.live()
			p := web("a")
			n.desire(p)
			n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
			n.must(fault.Set("podworker." + point + "=pause"))
			t.Cleanup(func() { n.must(fault.Set("")) })
			id, sandbox := n.rt.Container("a", "web").GetId(), n.rt.Sandboxes()[0].GetId()
			n.desire(n.deleted(p, 30))
			gone := false
			n.until("the point", func() bool {
				if n.lifecycle(p.UID, released) && !gone {
					gone = true
					n.forget(p.UID)
				}
				switch point {
				case "journal", "journaled":
					return true
				case "stop", "stop-sandbox", "withdraw", "release", "remove", "remove-sandbox", "clean":
					return n.flying(p.UID, step.Key(point)) || n.flying(p.UID, step.Key(point+"/"+id)) || n.flying(p.UID, step.Key(point+"/"+sandbox))
				case "stop.done":
					c := n.rt.Container("a", "web")
					return c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
				case "stop-sandbox.done":
					return n.sandboxesOf("a") == 0
				case "withdraw.done":
					return len(n.volumes.Keys()) == 0
				case "release.done":
					return len(n.allocations.Keys()) == 0
				case "remove.done":
					return len(n.rt.Containers()) == 0
				case "remove-sandbox.done":
					return len(n.rt.Sandboxes()) == 0
				default:
					return n.flying(p.UID, "clean")
				}
			})
			n.die()
			n.must(fault.Set(""))
			n.live()
			n.until("released", func() bool { return gone || n.lifecycle(p.UID, released) })
			n.forget(p.UID)
			n.until("forgotten", func() bool {
				_, complete, _ := n.states.State()
				return complete && n.state(p.UID) == nil && len(n.rt.Containers()) == 0 && len(n.rt.Sandboxes()) == 0
			})
			if got := n.rt.Count(fakecri.Match{Method: "StartContainer"}); got != 1 {
				t.Errorf("%d containers started, want 1", got)
			}
			records, err := n.life.journal.All()
			if err != nil || len(records) != 0 {
				t.Errorf("journal holds %v, %v", records, err)
			}
		})
	}
}
