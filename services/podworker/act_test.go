// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
	"github.com/sextant-node/sextant/test/fakecri"
)

// TestCriticalPodsHaveTheirTurnFirst: of pods whose images wait for their turn, a critical
// one comes before those that have waited for longer.
func TestCriticalPodsHaveTheirTurnFirst(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.edit = func(c *kubeletconfig.Config) {
		one := int32(1)
		c.Kubelet.MaxParallelImagePulls = &one
	}
	n.configure()
	n.live()
	pulls := fakecri.Match{Method: "PullImage"}
	stall := n.rt.Stall(pulls)
	image := func(p *v1.Pod) { p.Spec.Containers[0].Image = "registry/" + p.Name + ":1" }
	n.desire(web("first", image))
	n.until("the first is pulled", func() bool { return stall.Caught() == 1 })
	for _, p := range []*v1.Pod{web("plain", image), web("dns", image, critical)} {
		n.desire(p)
		n.pass("it waits", time.Second, func() bool {
			return strings.Contains(n.state(p.UID).GetWait().GetMessage(), "waits for its turn")
		})
	}
	stall.Release()
	n.until("all run", func() bool { return n.running("first") && n.running("plain") && n.running("dns") })
	var order []string
	for _, c := range n.rt.Calls(pulls) {
		order = append(order, c.Request.(*runtimeapi.PullImageRequest).GetImage().GetImage())
	}
	if want := []string{"registry/first:1", "registry/dns:1", "registry/plain:1"}; !slices.Equal(order, want) {
		t.Errorf("pulled %v, want %v", order, want)
	}
}

// TestAhead: containers come before sandboxes, those before all that are new in their
// sandbox, and what a critical pod starts before all of them.
func TestAhead(t *testing.T) {
	t.Parallel()
	plain, dns := web("plain"), web("dns", critical)
	sandbox, start := step.Action{Kind: step.RunSandbox}, step.Action{Kind: step.Start, Container: "app", Sandbox: "now"}
	here, before := &step.Last{ID: "1", Sandbox: "now"}, &step.Last{ID: "1", Sandbox: "before"}
	order := []time.Duration{
		ahead(sandbox, nil, nil), ahead(sandbox, nil, plain),
		ahead(start, here, plain), ahead(start, before, plain), ahead(start, nil, plain),
		ahead(sandbox, nil, dns), ahead(start, here, dns), ahead(start, nil, dns),
	}
	if want := []time.Duration{
		0, 0, time.Minute, 10 * time.Minute, 10 * time.Minute,
		time.Hour, time.Hour + time.Minute, time.Hour + 10*time.Minute,
	}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
}
