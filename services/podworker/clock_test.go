// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/test/fakecri"
)

// starts is how many containers were started.
func (n *node) starts() int { return n.rt.Count(fakecri.Match{Method: "StartContainer"}) }

// TestClockSetBack: the instance that was started last is the newest, whatever the clock
// said when it was made.
func TestClockSetBack(t *testing.T) {
	n := newNode(t)
	n.live()
	p := web("a", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyOnFailure })
	n.desire(p)
	n.until("running", func() bool { return n.running("a") && n.settled(p.UID) })
	first := n.rt.Container("a", "web").GetId()
	n.rt.JumpClock(-time.Hour)
	n.rt.Exit(first, 1)
	n.until("started again, and nothing is waited for", func() bool { return n.starts() == 2 && n.settled(p.UID) })
	for _, c := range n.rt.Containers() {
		if c.GetId() != first {
			n.rt.Exit(c.GetId(), 0)
		}
	}
	n.until("ended", func() bool { return n.state(p.UID).GetLifecycle() != podworkerv1.Lifecycle_LIFECYCLE_SYNCING })
	n.clock.Step(10 * time.Minute)
	n.until("released", func() bool { return n.state(p.UID).GetLifecycle() == podworkerv1.Lifecycle_LIFECYCLE_RELEASED })
	if got := n.starts(); got != 2 {
		t.Errorf("a pod that had succeeded was started again: %d starts", got)
	}
}

// TestBootWithAClockBehind: the sandbox of the boot before is not the newest, although it
// was made later by the clock.
func TestBootWithAClockBehind(t *testing.T) {
	n := newNode(t)
	n.boot = "first"
	n.live()
	p := web("a")
	n.desire(p)
	n.until("running", func() bool { return n.running("a") && n.settled(p.UID) })
	n.die()
	n.rt.JumpClock(-time.Hour)
	n.rt.KillSandbox(n.rt.Sandbox("a").GetId())
	n.boot = "second"
	n.live()
	n.until("running again", func() bool { return n.starts() == 2 && n.running("a") && n.settled(p.UID) })
	if got := n.rt.Count(fakecri.Match{Method: "RunPodSandbox"}); got != 2 {
		t.Errorf("%d sandboxes were made, not 2", got)
	}
}
