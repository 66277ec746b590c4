// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"path/filepath"
	"testing"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/test/deviceplugin"
)

// onlyOne gives the node to one pod at a time.
type onlyOne struct{}

func (onlyOne) Choose(r allocate.Request) allocate.Answer {
	for _, h := range r.Held {
		if len(h.Chosen.GetContainers()) > 0 {
			return allocate.Answer{Decision: resourcev1.Decision_DECISION_REJECTED, Reason: "Taken", Message: "by " + h.Pod.Name}
		}
	}
	r.Chosen.Containers = append(r.Chosen.Containers, &resourcev1.ContainerAllocation{Name: r.Pod.Spec.Containers[0].Name})
	return allocate.Answer{Decision: resourcev1.Decision_DECISION_ADMITTED, Chosen: r.Chosen}
}

// TestWhatWasChosenIsHeld: what an allocator chose is in the feed, is there again after a
// restart, and is free when the pod is released.
func TestWhatWasChosenIsHeld(t *testing.T) {
	with := func(d *resource.Deps) { d.Allocators = []allocate.Allocator{onlyOne{}} }
	r := newRig(t, with)
	r.settle()
	first := decision(r.admit(burstable("first", "1"), false))
	chosen := func() string {
		item, _ := r.pods.Get("first")
		if len(item.GetContainers()) != 1 {
			return ""
		}
		return item.GetContainers()[0].GetName()
	}
	r.Eventually("what was chosen is in the feed", func() bool { return chosen() == "c" })
	refused := "rejected Taken: by name-first"
	if got := decision(r.admit(burstable("second", "1"), false)); got != refused {
		t.Errorf("%s, want %s", got, refused)
	}
	before, _, _, _ := r.pods.State()
	r.stop()
	r.start(with)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	r.Eventually("what was chosen is in the feed again", func() bool { return chosen() == "c" })
	r.Eventually("the second is refused again", func() bool { return decision(r.admit(burstable("second", "1"), false)) == refused })
	if got := decision(r.admit(burstable("first", "1"), false)); got != first {
		t.Errorf("%s, was %s", got, first)
	}
	r.release("first")
	r.Eventually("released", func() bool { _, ok := r.pods.Get("first"); return !ok })
	if got := decision(r.admit(burstable("second", "1"), false)); got == refused {
		t.Error("what a released pod had is not free")
	}
}

// TestNothingIsKeptOfARefusedPod: nobody releases it. What a plugin preferred for it is asked
// again when it comes again.
func TestNothingIsKeptOfARefusedPod(t *testing.T) {
	r := newRig(t, func(d *resource.Deps) { d.Allocators = []allocate.Allocator{onlyOne{}} })
	r.settle()
	p := deviceplugin.Start(t, filepath.Join(r.machine, "device-plugins"), gpu, deviceplugin.Devices("a", "b"), deviceplugin.Prefers)
	r.counts("2", "2")
	r.decided(burstable("first", "1"), "admitted")
	for times := range 2 {
		r.decided(wanting("second", 1), "rejected Taken")
		if n := p.Asked(); n != times+1 {
			t.Errorf("the plugin was asked %d times when the pod had come %d times", n, times+1)
		}
	}
}
