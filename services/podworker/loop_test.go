package podworker

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/test/fakecri"
)

func TestStartAndDelete(t *testing.T) {
	n := newNode(t)
	n.live()
	p := web("a")
	n.desire(p)
	n.until("running", func() bool { return n.running("a") && n.settled(p.UID) })
	n.desire(n.deleted(p, 30))
	n.until("released", func() bool { return n.lifecycle(p.UID, podworkerv1.Lifecycle_LIFECYCLE_RELEASED) })
	if n.running("a") {
		t.Error("released while its container runs")
	}
	n.pods.Delete(context.Background(), string(p.UID))
	n.until("forgotten", func() bool {
		return n.state(p.UID) == nil && len(n.rt.Containers()) == 0 && len(n.rt.Sandboxes()) == 0
	})
	if n := n.rt.Count(fakecri.Match{Method: "StartContainer"}); n != 1 {
		t.Errorf("%d containers started, want 1", n)
	}
	_ = v1.PodRunning
}
