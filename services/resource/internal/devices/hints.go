// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// Hints implements topology.Provider.
func (c *Choice) Hints(p *v1.Pod, container *v1.Container) topology.Hints {
	names, numbers := c.wanted(p, container)
	return c.hints(names, numbers, func(name string) sets.Set[string] { return c.reusable[name] })
}

// PodHints implements topology.Provider.
func (c *Choice) PodHints(p *v1.Pod) topology.Hints {
	numbers := c.podNumbers(p)
	return c.hints(slices.Sorted(maps.Keys(numbers)), numbers, func(string) sets.Set[string] { return nil })
}

// podNumbers are the most devices that a pod has at a time, by resource: those of its
// containers and sidecars, or of an init container and the sidecars before it.
func (c *Choice) podNumbers(p *v1.Pod) map[string]int {
	running, sidecars, most := map[string]int{}, map[string]int{}, map[string]int{}
	for kind, container := range pod.Containers(p) {
		_, numbers := c.wanted(p, container)
		for name, n := range numbers {
			switch kind {
			case pod.Init:
				most[name] = max(most[name], n+sidecars[name])
			case pod.Sidecar:
				sidecars[name] += n
				most[name] = max(most[name], sidecars[name])
			case pod.Regular:
				running[name] += n
			case pod.Ephemeral:
			}
		}
	}
	for name, n := range running {
		most[name] = max(most[name], n+sidecars[name])
	}
	return most
}

func (c *Choice) hints(names []string, numbers map[string]int, reusable func(name string) sets.Set[string]) topology.Hints {
	all := topology.Hints{}
	for _, name := range names {
		nodes, known := c.Inventory[name].nodes()
		if !known {
			all[name] = nil
			continue
		}
		free, again := c.available(name), reusable(name)
		if len(free)+len(again) < numbers[name] {
			all[name] = []topology.Hint{}
			continue
		}
		all[name] = c.Inventory[name].hints(nodes, free, again, numbers[name])
	}
	return all
}

// nodes are the NUMA nodes near which there are devices; known is false where the plugin
// names none for any device: a set of nodes that would do could not be found then.
func (r *Resource) nodes() (nodes topology.Mask, known bool) {
	for _, d := range r.Devices {
		known = known || len(d.Nodes) > 0
		for _, n := range d.Nodes {
			if m, err := topology.MaskOf(n); err == nil {
				nodes |= m
			}
		}
	}
	return nodes, known
}

// hints are the sets of nodes whose devices suffice; preferred are those no larger than the
// smallest that would do if every device were free.
func (r *Resource) hints(nodes topology.Mask, free []Device, reusable sets.Set[string], n int) []topology.Hint {
	fewest := nodes.Len()
	list := []topology.Hint{}
	for mask := range nodes.Subsets() {
		in := 0
		for _, d := range r.Devices {
			if d.near(mask.Has) {
				in++
			}
		}
		if in >= n {
			fewest = min(fewest, mask.Len())
		}
		usable, covered := 0, true
		for id := range reusable {
			if d := r.Devices[id]; d.NUMA { // of others nothing is known, and none is left out for them
				covered = covered && d.near(mask.Has)
				usable++
			}
		}
		for _, d := range free {
			if d.near(mask.Has) {
				usable++
			}
		}
		if covered && usable >= n {
			list = append(list, topology.Hint{Affinity: mask})
		}
	}
	for i := range list {
		list[i].Preferred = list[i].Affinity.Len() == fewest
	}
	return list
}
