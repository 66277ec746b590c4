// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// Given is what a container has, or is to have, of one resource.
type Given struct {
	Container, Resource string
	// Prestart: the plugin wants PreStartContainer before each start of the container.
	Prestart bool
	// Devices in the order of their IDs.
	Devices []Device
}

// Question is a GetPreferredAllocation: of Available, which Size devices are best, Must
// among them.
type Question struct {
	Resource        string
	Available, Must []string
	Size            int
}

// Key tells questions apart.
func (q Question) Key() string {
	return fmt.Sprintf("%s %q %q %d", q.Resource, q.Available, q.Must, q.Size)
}

// Preference answers a question; nil where there is no answer.
type Preference func(Question) []string

// Waiting is why a pod waits for the plugin of a resource.
type Waiting struct{ Resource, Why string }

// String names the resource and the reason.
func (w *Waiting) String() string {
	return fmt.Sprintf("waiting for the device plugin of %s: %s", w.Resource, w.Why)
}

// Error is String.
func (w *Waiting) Error() string { return w.String() }

// Choice chooses the devices of one pod. It implements topology.Provider: what it allocates
// is in Given, and counts when its owner keeps it. It is pure but for Preference.
type Choice struct {
	Inventory Inventory
	// Used are the devices that other pods have, by resource.
	Used map[string]sets.Set[string]
	// Had are the devices that this pod had before the node booted, by resource: it gets
	// them again where they are free, healthy, and near what the affinity wants.
	Had map[string]sets.Set[string]
	// Prefer may be nil.
	Prefer Preference

	given []Given
	// reusable are devices of init containers that have ended when the container at hand
	// starts, by resource.
	reusable map[string]sets.Set[string]
}

var _ topology.Provider = (*Choice)(nil)

// Again is the choice before anything was chosen.
func (c *Choice) Again() *Choice {
	return &Choice{Inventory: c.Inventory, Used: c.Used, Had: c.Had, Prefer: c.Prefer}
}

// Given is what was chosen so far.
func (c *Choice) Given() []Given { return c.given }

// wanted are the resources of plugins that a container asks for, with their numbers, by
// name. A resource that is allocated as a claim is not among them (KEP-5004).
func (c *Choice) wanted(p *v1.Pod, container *v1.Container) (names []string, numbers map[string]int) {
	numbers = map[string]int{}
	for name, q := range container.Resources.Limits {
		if c.Inventory[string(name)] != nil && q.Value() > 0 && !claimed(p, container.Name, string(name)) {
			numbers[string(name)] = int(q.Value())
		}
	}
	return slices.Sorted(maps.Keys(numbers)), numbers
}

func claimed(p *v1.Pod, container, resource string) bool {
	status := p.Status.ExtendedResourceClaimStatus
	if status == nil {
		return false
	}
	return slices.ContainsFunc(status.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == resource
	})
}

// Consults reports whether a pod asks for devices of which a plugin may prefer some.
func (c *Choice) Consults(p *v1.Pod) bool {
	for _, container := range pod.Containers(p) {
		names, _ := c.wanted(p, container)
		if slices.ContainsFunc(names, func(name string) bool { return c.Inventory[name].Prefers }) {
			return true
		}
	}
	return false
}

// Waits returns why a pod has to wait for the plugin of a resource; nil when it need not.
func (c *Choice) Waits(p *v1.Pod) *Waiting {
	for _, container := range pod.Containers(p) {
		names, _ := c.wanted(p, container)
		for _, name := range names {
			if r := c.Inventory[name]; r.State == Away || r.State == Hung {
				return &Waiting{name, r.Why}
			}
		}
	}
	return nil
}

// Allocate implements topology.Provider.
func (c *Choice) Allocate(p *v1.Pod, container *v1.Container, affinity topology.Hint) error {
	kind := kindOf(p, container.Name)
	names, numbers := c.wanted(p, container)
	for _, name := range names {
		devices, err := c.pick(name, numbers[name], affinity)
		if err != nil {
			return err
		}
		c.give(Given{Container: container.Name, Resource: name, Prestart: c.Inventory[name].Prestarts, Devices: devices}, kind)
	}
	return nil
}

// AllocatePod implements topology.Provider: a pod has no devices as a whole, each container
// has its own. A kubelet chooses them when it creates the container, wherever they are, and
// cannot where a plugin is to be called before the start.
func (c *Choice) AllocatePod(p *v1.Pod, affinity topology.Hint) error {
	for kind, container := range pod.Containers(p) {
		if kind == pod.Ephemeral {
			continue
		}
		if err := c.Allocate(p, container, affinity); err != nil {
			return err
		}
	}
	return nil
}

func kindOf(p *v1.Pod, name string) pod.ContainerKind {
	for kind, c := range pod.Containers(p) {
		if c.Name == name {
			return kind
		}
	}
	return pod.Regular
}

// give notes what a container gets. What an init container has others may have after it;
// what containers have that go on running no other may.
func (c *Choice) give(g Given, kind pod.ContainerKind) {
	c.given = append(c.given, g)
	if c.reusable == nil {
		c.reusable = map[string]sets.Set[string]{}
	}
	if c.reusable[g.Resource] == nil {
		c.reusable[g.Resource] = sets.New[string]()
	}
	if kind == pod.Init {
		c.reusable[g.Resource].Insert(IDs(g.Devices)...)
	} else {
		c.reusable[g.Resource].Delete(IDs(g.Devices)...)
	}
}

// IDs of devices, in their order.
func IDs(devices []Device) []string {
	ids := make([]string, 0, len(devices))
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	return ids
}

// available are the healthy devices that no pod has, this one included, by ID.
func (c *Choice) available(name string) []Device {
	used := c.Used[name].Clone()
	if used == nil {
		used = sets.New[string]()
	}
	for _, g := range c.given {
		if g.Resource == name {
			used.Insert(IDs(g.Devices)...)
		}
	}
	var free []Device
	for _, id := range slices.Sorted(maps.Keys(c.Inventory[name].Devices)) {
		if d := c.Inventory[name].Devices[id]; d.Healthy && !used.Has(id) {
			free = append(free, d)
		}
	}
	return free
}

// pick chooses n devices: reusable ones first; then those that the pod had; those near the nodes of the affinity,
// those near others, and those of which nothing is known. Where a set has more than are
// needed the plugin is asked, else the lowest IDs are taken.
func (c *Choice) pick(name string, n int, affinity topology.Hint) ([]Device, error) {
	r := c.Inventory[name]
	healthy := slices.ContainsFunc(slices.Collect(maps.Values(r.Devices)), func(d Device) bool { return d.Healthy })
	switch {
	case r.State == Gone:
		return nil, fmt.Errorf("cannot allocate unregistered device %s", name)
	case !healthy:
		return nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", name)
	}
	picked := picking{resource: r, size: n}
	for _, id := range sets.List(c.reusable[name]) {
		if d := r.Devices[id]; d.Healthy {
			picked.take(d)
		}
	}
	if picked.needs() == 0 {
		return picked.sorted(), nil
	}
	free := c.available(name)
	if len(free) < picked.needs() {
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", name, picked.needs(), len(free))
	}
	aligned, unaligned, anywhere := split(free, affinity)
	for _, d := range slices.Concat(aligned, anywhere) {
		if c.Had[name].Has(d.ID) {
			picked.take(d)
		}
	}
	if picked.needs() < len(aligned) {
		c.preferred(&picked, name, aligned)
		picked.take(aligned...)
		return picked.sorted(), nil
	}
	picked.take(aligned...)
	c.preferred(&picked, name, free)
	picked.take(unaligned...)
	picked.take(anywhere...)
	return picked.sorted(), nil
}

// split sorts devices by an affinity; without one nothing is known of any.
func split(free []Device, affinity topology.Hint) (aligned, unaligned, anywhere []Device) {
	for _, d := range free {
		switch {
		case affinity.Affinity == 0 || len(d.Nodes) == 0:
			anywhere = append(anywhere, d)
		case d.near(affinity.Affinity.Has):
			aligned = append(aligned, d)
		default:
			unaligned = append(unaligned, d)
		}
	}
	return aligned, unaligned, anywhere
}

// preferred takes what the plugin prefers of some devices.
func (c *Choice) preferred(p *picking, name string, of []Device) {
	if p.needs() == 0 || c.Prefer == nil || !p.resource.Prefers {
		return
	}
	must := slices.Sorted(slices.Values(IDs(p.devices)))
	all := sets.New(IDs(of)...).Insert(must...)
	for _, id := range c.Prefer(Question{Resource: name, Available: sets.List(all), Must: must, Size: p.size}) {
		if i := slices.IndexFunc(of, func(d Device) bool { return d.ID == id }); i >= 0 {
			p.take(of[i])
		}
	}
}

// picking is a choice of size devices that is being made.
type picking struct {
	resource *Resource
	size     int
	devices  []Device
}

func (p *picking) needs() int { return p.size - len(p.devices) }

// take adds what is not in it yet, until it is full.
func (p *picking) take(devices ...Device) {
	for _, d := range devices {
		if p.needs() > 0 && !slices.ContainsFunc(p.devices, func(have Device) bool { return have.ID == d.ID }) {
			p.devices = append(p.devices, d)
		}
	}
}

func (p *picking) sorted() []Device {
	slices.SortFunc(p.devices, func(a, b Device) int { return strings.Compare(a.ID, b.ID) })
	return p.devices
}
