// SPDX-License-Identifier: Apache-2.0

// Package dead chooses which dead containers of the node are too many, by the
// kubelet's rule for --maximum-dead-containers. It is pure.
package dead

import (
	"cmp"
	"slices"
	"time"
)

// Container is one that is dead.
type Container struct {
	ID string
	// Pod and Name say whose instance it is.
	Pod, Name string
	// Attempt is the number of the instance: among those of one name the greater is newer,
	// whatever the clock said.
	Attempt int
	Created time.Time
}

// Excess are the IDs of those to remove so that most are left: each container of
// a pod keeps an equal share of its newest instances, at least one; if that is
// still too many, the oldest of all go. Negative most means no limit.
func Excess(all []Container, most int) map[string]bool {
	excess := map[string]bool{}
	if most < 0 || len(all) <= most {
		return excess
	}
	type unit struct{ pod, name string }
	units := map[unit][]Container{}
	for _, c := range all {
		u := unit{c.Pod, c.Name}
		units[u] = append(units[u], c)
	}
	share := max(most/len(units), 1)
	var left []Container
	for _, instances := range units {
		slices.SortFunc(instances, func(a, b Container) int {
			return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID)) // newest first
		})
		for i, c := range instances {
			if i >= share {
				excess[c.ID] = true
				continue
			}
			left = append(left, c)
		}
	}
	slices.SortFunc(left, func(a, b Container) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID)) })
	for _, c := range left[min(most, len(left)):] {
		excess[c.ID] = true
	}
	return excess
}
