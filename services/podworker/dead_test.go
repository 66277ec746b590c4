// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// TestDeadContainersAreCountedInAll: of two pods that restarted, the node keeps one
// dead container (--maximum-dead-containers), the newest.
func TestDeadContainersAreCountedInAll(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.edit = func(c *kubeletconfig.Config) { c.Node.MaxDeadContainers = 1 }
	n.configure()
	n.live()
	for _, name := range []string{"a", "b"} {
		p := web(name)
		n.desire(p)
		n.until("up", func() bool { return n.running(name) && n.settled(p.UID) })
		n.clock.Step(time.Second)
		n.rt.Exit(n.rt.Container(name, "web").GetId(), 1)
		n.until("again", func() bool { return n.rt.Container(name, "web").GetMetadata().GetAttempt() == 1 && n.running(name) })
	}
	if got := len(n.rt.Containers()); got != 4 {
		t.Fatalf("%d containers", got)
	}
	n.pass("one to go", 10*time.Second, func() bool { return len(n.rt.Containers()) == 3 })
	for _, c := range n.rt.Containers() {
		if c.GetMetadata().GetAttempt() == 0 && c.GetLabels()["io.kubernetes.pod.name"] != "b" {
			t.Error("the newer one went")
		}
	}
}
