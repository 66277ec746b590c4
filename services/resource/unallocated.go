// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// searchPeriod is how often cgroups that hold nothing are searched for while there are none:
// there are some after a start, if ever, and the first search is then.
const searchPeriod = time.Minute

// unallocated looks for cgroups of pods that hold nothing: the allocation was lost with
// the state file, or another agent made the cgroup. The loop's alone.
type unallocated struct {
	tree *tree
	// due is when the next search is, seen what the last one found.
	due  time.Time
	seen map[string]bool
	// uids were found by the last two searches, sorted.
	uids []string
}

// search looks when it is time. A cgroup counts when two searches find it: between the
// two a pod that is admitted or released is noted.
func (u *unallocated) search(at time.Time, now *settings) error {
	if !now.qos() {
		u.due = time.Time{}
		return nil
	}
	if at.Before(u.due) && at.After(u.due.Add(-2*searchPeriod)) {
		return nil
	}
	u.due = at.Add(period)
	cgroups, found, lasting := u.tree.of(now.driver), map[string]bool{}, map[string]bool{}
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		uids, err := cgroups.Pods(pod.QOSCgroup(now.root, class))
		if err != nil {
			return err
		}
		for _, uid := range uids {
			if u.tree.ledger.get(string(uid)) == nil {
				found[string(uid)] = true
				if u.seen[string(uid)] {
					lasting[string(uid)] = true
				}
			}
		}
	}
	if len(found) == 0 {
		u.due = at.Add(searchPeriod)
	}
	u.seen, u.uids = found, slices.Sorted(maps.Keys(lasting))
	return nil
}
