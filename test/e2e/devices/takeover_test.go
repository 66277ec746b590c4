// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/load"
)

// TestTakeOver goes from the reference kubelet to Sextant, back, and to Sextant again, under
// pods with devices of two plugins, claims of their own and one that they share, and a pod
// with a CPU and memory of its own. Every container runs on, and has what it had; each agent
// knows who has what, and gives a new pod something else; no claim is unprepared, or
// prepared once more, while its pod runs.
func TestTakeOver(t *testing.T) {
	t.Run("containers", func(t *testing.T) { takeOver(t, pinnedName, 3, configure) })
	// The pod's CPU and memory are the pod's as a whole, and so in the state files. A kubelet
	// refuses such a pod when it starts and finds it running, its own too (kubernetes issue
	// 140989).
	t.Run("pods", func(t *testing.T) {
		takeOver(t, wholeName, 1, func(c *kubeletv1beta1.KubeletConfiguration) {
			configure(c)
			c.TopologyManagerScope = "pod"
			c.FeatureGates = map[string]bool{"PodLevelResourceManagers": true}
		})
	})
}

func takeOver(t *testing.T, pinned string, changes int, configure func(*kubeletv1beta1.KubeletConfiguration)) {
	cp := harness.StartControlPlane(t)
	kubelet := harness.StartReference(t, harness.NodeOptions{ControlPlane: cp, Configure: configure, Root: "/var/lib/kubelet"})
	n := harness.NewNode(t, harness.NodeOptions{Place: &kubelet.Place})
	t.Cleanup(func() { kubelet.Kill(t) }) // or it would start again what is being removed
	c := newCrowd(t, n, rand.New(rand.NewPCG(1, 1)))
	c.equip(cp)
	c.churn.keepers()
	c.Blind = func(p *corev1.Pod) {
		withoutHealth(p)
		p.Status.Resources = nil // after its own restart a kubelet reads them of the cgroup
	}
	own := pinned + "0"
	c.must(c.churn.come(t.Context(), own, own))
	before := c.ids()
	toSextant := func() {
		kubelet.Kill(t)
		n.Up(t)
		c.must(c.serving())
	}
	toKubelet := func() {
		n.Down(t)
		kubelet.Up(t)
	}
	for i, change := range []struct {
		what string
		to   func()
	}{{"kubelet to Sextant", toSextant}, {"Sextant to kubelet", toKubelet}, {"kubelet to Sextant again", toSextant}}[:changes] {
		calls := len(c.driver.Calls())
		began := time.Now()
		change.to()
		// A new pod shows that the agent is at work and has looked at the others.
		name := fmt.Sprintf("comes-%d", i)
		c.must(c.churn.come(t.Context(), name, name))
		t.Logf("%s: a new pod was Ready after %.1f s", change.what, time.Since(began).Seconds())
		for _, f := range append(c.truth(), c.Look()...) {
			t.Errorf("%s: %s: %s", change.what, f.Kind, f.What)
		}
		c.must(c.apart())
		c.must(c.churn.leave(t.Context(), name))
		if now := c.ids(); !maps.Equal(now, before) {
			t.Errorf("%s: containers were %v and are %v", change.what, before, now)
		}
		for _, call := range c.driver.Calls()[calls:] {
			if !strings.Contains(call, "/"+name+" ") {
				t.Errorf("%s: the driver was asked to %s", change.what, call)
			}
		}
	}
	// What the last agent took over it also gives back.
	c.must(c.churn.leave(t.Context(), own))
	again := pinned + "1"
	c.must(c.churn.come(t.Context(), again, again))
	c.must(c.churn.leave(t.Context(), again))
	c.must(c.churn.left(keepers + 1))
	for _, f := range c.End() {
		t.Errorf("the end: %s: %s", f.Kind, f.What)
	}
	c.must(c.churn.left(0))
}

func (c *crowd) must(err error) {
	c.T.Helper()
	if err != nil {
		c.T.Fatal(err)
	}
}

// ids are the containers that run and what they have.
func (c *crowd) ids() map[string]string {
	c.T.Helper()
	all := map[string]string{}
	c.must(harness.Within(c.T.Context(), load.Patience, func(ctx context.Context) error {
		running, err := c.running(ctx)
		for _, id := range slices.Sorted(maps.Keys(running)) {
			h := running[id]
			all[id] = fmt.Sprint(h.pod, h.devices)
			if h.pinned() {
				all[id] += " " + h.cpus.String()
			}
		}
		return err
	}))
	return all
}
