// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"testing"

	"github.com/sextant-node/sextant/test/cgrouptest"
	"github.com/sextant-node/sextant/test/deviceplugin"
)

// TestPodsThatAreOverDoNotCount: the scheduler places a pod where one has ended, before what
// that one holds was given back.
func TestPodsThatAreOverDoNotCount(t *testing.T) {
	const short = "rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000"
	r := newRig(t, nil)
	r.settle()
	r.admit(burstable("ended", "3"), false)
	if got := decision(r.admitBeside(burstable("early", "3"), false, "another")); got != short {
		t.Errorf("beside one that runs: %s", got)
	}
	if got := decision(r.admitBeside(burstable("next", "3"), false, "ended")); got[:9] != "admitted " {
		t.Errorf("beside one that has ended: %s", got)
	}
	leave := cgrouptest.Occupy(t, r.kubepods("burstable", "podnext"))
	defer leave()
	r.release("next")
	r.Eventually("its cgroup cannot be removed", func() bool { item, _ := r.pods.Get("next"); return item.GetError() != "" })
	if got := decision(r.admitBeside(burstable("last", "3"), false)); got[:9] != "admitted " {
		t.Errorf("beside one that is being released: %s", got)
	}
	if got := decision(r.admitBeside(burstable("ended", "3"), false)); got[:9] != "admitted " {
		t.Errorf("one that runs again: %s", got)
	}
	if got := decision(r.admitBeside(burstable("no", "1"), false)); got[:9] != "rejected " {
		t.Errorf("it counts again: %s", got)
	}
}

// TestDevicesThatAreBeingGivenBack: a pod waits for them, and is not refused.
func TestDevicesThatAreBeingGivenBack(t *testing.T) {
	r, dir := plugins(t)
	deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a"))
	r.counts("1", "1")
	r.admitted(wanting("one", 1))
	if got := decision(r.admitBeside(wanting("two", 1), false)); got[:9] != "rejected " {
		t.Errorf("while it runs: %s", got)
	}
	if got := decision(r.admitBeside(wanting("two", 1), false, "one")); got != "not yet: waiting for what pods that have ended give back: ns/name-one" {
		t.Errorf("once it has ended: %s", got)
	}
	r.release("one")
	r.Eventually("released", func() bool { _, ok := r.pods.Get("one"); return !ok })
	if got := r.admitted(wanting("two", 1)); got != "a" {
		t.Errorf("devices %s", got)
	}
}
