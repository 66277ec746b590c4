// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/fakecri"
)

// killAnywhere runs a test for each point at which podworker is killed, and there for each
// feed that its next life reads last: all that the others say is known, and of that one what
// the journal has at most. next starts that life.
func killAnywhere(t *testing.T, points []string, test func(t *testing.T, point string, next func(n *node))) {
	for _, point := range points {
		t.Run(point, func(t *testing.T) { test(t, point, (*node).live) })
		for _, last := range []string{
			house.ConfigPods.Name, house.ConfigSources.Name, house.PlegPods.Name, house.VolumePods.Name, house.ResourcePods.Name,
		} {
			t.Run(point+"/"+last, func(t *testing.T) {
				test(t, point, func(n *node) {
					release := n.wire.hold(last)
					defer release()
					n.live()
					n.rest()
				})
			})
		}
	}
}

// TestKillAnywhereWhileStarting kills podworker at every point of a pod's start
// and starts it again on the same state: the pod comes up, with one sandbox and
// one instance of its container, which is the first.
func TestKillAnywhereWhileStarting(t *testing.T) {
	killAnywhere(t, []string{
		"podworker.admit", "podworker.admit.done", "podworker.journal", "podworker.journaled", "podworker.declare", "podworker.declare.done",
		"podworker.sandbox", "podworker.sandbox.done", "podworker.pull", "podworker.pull.done", "podworker.create", "podworker.start", "podworker.start.done",
	}, func(t *testing.T, point string, next func(n *node)) {
		n := newNode(t)
		n.must(fault.Set(point + "=pause"))
		t.Cleanup(func() { n.must(fault.Set("")) })
		n.live()
		p := web("a")
		n.desire(p)
		n.until("the point", func() bool { return fault.Caught(point) > 0 })
		n.die()
		before := n.rt.Container("a", "web")
		n.must(fault.Set(""))
		next(n)
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

// TestKillBetweenCreateAndStart: the container that was created and never
// started is made again under the same number.
func TestKillBetweenCreateAndStart(t *testing.T) {
	t.Parallel()
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
	killAnywhere(t, []string{
		"podworker.journal", "podworker.journaled", "podworker.stop", "podworker.stop.done", "podworker.stop-sandbox", "podworker.stop-sandbox.done",
		"podworker.withdraw", "podworker.withdraw.done", "podworker.release", "podworker.release.done", "podworker.remove", "podworker.remove.done",
		"podworker.remove-sandbox", "podworker.remove-sandbox.done", "podworker.clean", "podworker.clean.done",
	}, func(t *testing.T, point string, next func(n *node)) {
		n := newNode(t)
		n.live()
		p := web("a")
		n.desire(p)
		n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
		n.must(fault.Set(point + "=pause"))
		t.Cleanup(func() { n.must(fault.Set("")) })
		n.desire(n.deleted(p, 30))
		gone := false
		n.until("the point", func() bool {
			if n.lifecycle(p.UID, released) && !gone {
				gone = true
				n.forget(p.UID)
			}
			return fault.Caught(point) > 0
		})
		n.die()
		n.must(fault.Set(""))
		next(n)
		n.until("released", func() bool { return gone || n.lifecycle(p.UID, released) })
		n.forget(p.UID)
		n.until("forgotten", func() bool {
			_, complete, _ := n.states.State()
			return complete && n.state(p.UID) == nil && len(n.rt.Containers()) == 0 && len(n.rt.Sandboxes()) == 0
		})
		if got := n.rt.Count(fakecri.Match{Method: "StartContainer"}); got != 1 {
			t.Errorf("%d containers started, want 1", got)
		}
		// A record that pleg had on its way may have it looked at once more.
		n.until("an empty journal", func() bool {
			records, err := n.life.journal.All()
			return err == nil && len(records) == 0
		})
	})
}
