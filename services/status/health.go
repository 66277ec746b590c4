// SPDX-License-Identifier: Apache-2.0

package status

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// allocation is the part of an item of resource.pods that a pod's status needs.
type allocation struct {
	// health of the devices of containers, by the containers' names.
	health map[string][]v1.ResourceStatus
	// oomKilled are the IDs of containers in which the kernel killed a process for want of
	// memory.
	oomKilled []string
}

func decodeAllocation(_ string, m *resourcev1.PodAllocation) (*allocation, error) {
	all := map[string][]v1.ResourceStatus{}
	for _, h := range m.GetDeviceHealth() {
		list := all[h.GetContainer()]
		if n := len(list); n == 0 || list[n-1].Name != v1.ResourceName(h.GetResource()) {
			list = append(list, v1.ResourceStatus{Name: v1.ResourceName(h.GetResource())})
		}
		last := &list[len(list)-1]
		health := v1.ResourceHealth{ResourceID: v1.ResourceID(h.GetId()), Health: v1.ResourceHealthStatus(h.GetHealth())}
		if h.GetMessage() != "" {
			health.Message = new(h.GetMessage())
		}
		last.Resources = append(last.Resources, health)
		all[h.GetContainer()] = list
	}
	return &allocation{all, m.GetOomKilled()}, nil
}

// ofFacts marks the pods of which resource says something that statuses have, and those of
// which it no longer does: most allocations are of neither kind.
func ofFacts(allocations *feed.Replica[*allocation], mark func([]string)) func(keys []string) {
	said := map[string]bool{}
	return func(keys []string) {
		if len(keys) == 0 {
			mark([]string{everything})
			clear(said)
			keys = slices.Collect(maps.Keys(allocations.Items()))
		}
		for _, uid := range keys {
			a, _ := allocations.Get(uid)
			says := a != nil && (len(a.health) > 0 || len(a.oomKilled) > 0)
			if says || said[uid] {
				mark([]string{uid})
			}
			if says {
				said[uid] = true
			} else {
				delete(said, uid)
			}
		}
	}
}

// withoutMessages is the health of devices for a node that does not report messages of it.
func withoutMessages(containers map[string][]v1.ResourceStatus) map[string][]v1.ResourceStatus {
	all := map[string][]v1.ResourceStatus{}
	for name, list := range containers {
		for _, s := range list {
			s.Resources = slices.Clone(s.Resources)
			for i := range s.Resources {
				s.Resources[i].Message = nil
			}
			all[name] = append(all[name], s)
		}
	}
	return all
}
