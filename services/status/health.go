// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// decodeHealth keeps of an allocation how the devices of its containers are.
func decodeHealth(_ string, m *resourcev1.PodAllocation) (map[string][]v1.ResourceStatus, error) {
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
	return all, nil
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
