// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/test/cgrouptest"
)

func TestARestartKeepsWhatIsHeld(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	first := decision(r.admit(burstable("kept", "3"), false))
	r.admit(burstable("leaving", "1"), false)
	leave := cgrouptest.Occupy(t, r.kubepods("burstable", "podleaving"))
	r.release("leaving")
	r.Eventually("releasing", func() bool { item, _ := r.pods.Get("leaving"); return item.GetReleasing() })
	before, _, _, _ := r.pods.State()
	r.stop()
	leave()
	// A reboot takes the cgroups, too.
	tree := cgroup.Tree{Driver: "cgroupfs"}
	if err := tree.Remove(r.kubepods("burstable", "podkept")); err != nil {
		t.Fatal(err)
	}
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	r.Eventually("the release is finished", func() bool { _, ok := r.pods.Get("leaving"); return !ok })
	if cgrouptest.Exists(t, r.kubepods("burstable", "podleaving")) {
		t.Error("the released pod's cgroup is left")
	}
	r.Eventually("the cgroup is back", func() bool { return cgrouptest.Exists(t, r.kubepods("burstable", "podkept")) })
	r.Eventually("settled", func() bool { _, ok := r.node.Get("node"); return ok && r.node.Complete() })
	if got := decision(r.admit(burstable("kept", "3"), false)); got != first {
		t.Errorf("%s, was %s", got, first)
	}
	if got := decision(r.admit(burstable("next", "2"), false)); !strings.HasPrefix(got, "rejected OutOfcpu") {
		t.Errorf("what is held was forgotten: %s", got)
	}
}

// TestAReleaseNeedsNoNeighbour: what was promised is done though config and pleg
// are silent.
func TestAReleaseNeedsNoNeighbour(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(burstable("u", "1"), false)
	leave := cgrouptest.Occupy(t, r.kubepods("burstable", "podu"))
	r.release("u")
	r.stop()
	leave()
	r.kubelet.Delete(r.Context(), "kubelet")
	r.runtime.Delete(r.Context(), "runtime")
	r.start(nil)
	r.Eventually("released", func() bool { _, ok := r.pods.Get("u"); return !ok && r.pods.Complete() })
	if cgrouptest.Exists(t, r.kubepods("burstable", "podu")) {
		t.Error("the cgroup is left")
	}
}

func TestALostCheckpointCostsNothingThatRuns(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	first := decision(r.admit(burstable("u", "3"), false))
	leave := cgrouptest.Occupy(t, r.kubepods("burstable", "podu")) // its containers
	defer leave()
	r.stop()
	state := filepath.Join(r.Paths.StateOf(house.Resource), "state.db")
	if err := os.WriteFile(state, []byte(strings.Repeat("garbage", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start(nil)
	if aside, err := filepath.Glob(state + ".damaged-*"); err != nil || len(aside) != 1 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	r.Eventually("asked as running", func() bool { return decision(r.admit(burstable("u", "3"), true)) == first })
	if got := decision(r.admit(burstable("next", "2"), false)); !strings.HasPrefix(got, "rejected OutOfcpu") {
		t.Errorf("what runs does not count: %s", got)
	}
	if pids, err := cgroups.GetAllPids(filepath.Join("/sys/fs/cgroup/memory", r.kubepods("burstable", "podu").Path("cgroupfs"))); !cgrouptest.V2() && (err != nil || len(pids) != 1) {
		t.Errorf("processes in the cgroup: %v, %v", pids, err)
	}
}
