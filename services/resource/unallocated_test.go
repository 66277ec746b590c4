// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/test/cgrouptest"
)

// TestCgroupsWithoutAllocation: cgroups of pods that hold nothing are in the node's item,
// in each class; those of pods that hold something, or are being released still, are not.
// Release removes them.
func TestCgroupsWithoutAllocation(t *testing.T) {
	s := newStrained(t)
	s.settle()
	s.admit(burstable("held", "1"), false)
	s.admit(burstable("leaving", "1"), false)
	leave := cgrouptest.Occupy(t, s.kubepods("burstable", "podleaving"))
	defer leave()
	s.release("leaving")
	lost := map[string][]string{"a-1": {"poda-1"}, "b-1": {"burstable", "podb-1"}, "c-1": {"besteffort", "podc-1"}}
	for _, parts := range append(slices.Collect(maps.Values(lost)), []string{"other"}, []string{"burstable", "pod"}) {
		if err := (cgroup.Tree{Driver: "cgroupfs"}).Ensure(s.kubepods(parts...), cgroup.Values{}); err != nil {
			t.Fatal(err)
		}
	}
	listed := func(want ...string) func() bool {
		return func() bool {
			s.after(10 * time.Second)
			item, _ := s.node.Get("node")
			return slices.Equal(item.GetUnallocatedCgroups(), want)
		}
	}
	s.Eventually("found", listed("a-1", "b-1", "c-1"))
	for uid, parts := range lost {
		s.release(uid)
		s.Eventually(uid+" is gone", func() bool { return !cgrouptest.Exists(t, s.kubepods(parts...)) })
	}
	s.Eventually("none is left", listed())
}
