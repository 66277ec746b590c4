// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/sextant-node/sextant/pkg/pod"
)

// PodLevel is the gate PodLevelResourceManagers.
type PodLevel bool

// AsWhole reports whether a pod has resources of its own that count.
func (on PodLevel) AsWhole(p *v1.Pod) bool {
	return bool(on) && resourcehelper.IsPodLevelResourcesSet(p)
}

// Amounts are numbers of CPUs or bytes of memory, by resource.
type Amounts map[v1.ResourceName]uint64

// Names of the resources, sorted.
func (a Amounts) Names() []v1.ResourceName { return slices.Sorted(maps.Keys(a)) }

// Difference is what is left without others.
func (a Amounts) Difference(others Amounts) Amounts {
	left := Amounts{}
	for name, n := range a {
		left[name] = n - min(n, others[name])
	}
	return left
}

// Part is what a container has of what its pod has as a whole.
type Part[P any] struct {
	Of P
	// Exclusive: no other container that runs at the same time has a part of it.
	Exclusive bool
}

// Split gives the containers of a pod with resources of its own parts of what the pod has as
// a whole, by name (KEP-5526). take takes what a container has for itself from what is left:
// sidecars and containers keep it, init containers leave it to those after them. One that
// has nothing for itself shares what is left in the end, or when it starts as an init
// container.
func Split[P interface{ Difference(P) P }](p *v1.Pod, whole P, take func(c *v1.Container, left P) (part P, ok bool, err error)) (map[string]Part[P], error) {
	parts, left, sharing := map[string]Part[P]{}, whole, []string{}
	for kind, c := range pod.Containers(p) {
		if kind == pod.Ephemeral {
			continue
		}
		part, ok, err := take(c, left)
		if err != nil {
			return nil, err
		}
		switch {
		case ok:
			parts[c.Name] = Part[P]{part, true}
			if kind != pod.Init {
				left = left.Difference(part)
			}
		case kind == pod.Init:
			parts[c.Name] = Part[P]{left, false}
		default:
			sharing = append(sharing, c.Name)
		}
	}
	for _, name := range sharing {
		parts[name] = Part[P]{left, false}
	}
	return parts, nil
}

// Shortage is what containers of a pod would share and have none of: others have all of it
// for themselves.
type Shortage struct {
	Resource v1.ResourceName
	// Starting: init containers have none.
	Starting bool
}

// ShortageOf finds what containers of a pod with resources of its own would share and have
// none of; nil when they have some. own is what a container has for itself.
func ShortageOf(p *v1.Pod, whole Amounts, own func(*v1.Container) Amounts) *Shortage {
	taken, shares := Amounts{}, false // by what runs as long as the pod
	for kind, c := range pod.Containers(p) {
		part := own(c)
		switch {
		case kind == pod.Ephemeral:
		case kind == pod.Init:
			if name, all := whole.allOf(taken); len(part) == 0 && all {
				return &Shortage{name, true}
			}
		case len(part) == 0:
			shares = true
		default:
			for name, n := range part {
				taken[name] += n
			}
		}
	}
	if name, all := whole.allOf(taken); shares && all {
		return &Shortage{name, false}
	}
	return nil
}

// allOf returns a resource of which all is taken.
func (a Amounts) allOf(taken Amounts) (v1.ResourceName, bool) {
	for _, name := range a.Names() {
		if taken[name] >= a[name] {
			return name, true
		}
	}
	return "", false
}

// EmptyPool is the refusal of a pod with a Shortage, with the message of the provider.
func EmptyPool(message string) *Refusal {
	return &Refusal{"EmptyPodSharedPoolError", "pod rejected, " + message}
}

// Counts are what metrics count of a provider's admission, as the gate
// PodLevelResourceManagers has them.
type Counts struct {
	// Node and Pod are allocations from the node and from what a pod has as a whole;
	// NodeErrors and PodErrors those that failed.
	Node, Pod, NodeErrors, PodErrors int
	// Exclusive are containers with a part of the node for themselves, PodExclusive with a
	// part of what their pod has, PodShared those that share what is left of it.
	Exclusive, PodExclusive, PodShared int
}
