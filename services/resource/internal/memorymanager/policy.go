// SPDX-License-Identifier: Apache-2.0

package memorymanager

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/services/resource/internal/layout"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager/state"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// Names of policies, as memoryManagerPolicy has them.
const (
	None   = kubeletv1beta1.NoneMemoryManagerPolicy
	Static = kubeletv1beta1.StaticMemoryManagerPolicy
)

// Assignment is what a container of a pod has. The order of several is that in which their
// blocks fill the nodes.
type Assignment struct {
	UID, Container string // Container is "" for what a pod has as a whole
	Blocks         []state.Block
	// Part: the blocks are a part of what the pod has as a whole.
	Part bool
}

// Policy is the static one, for a machine.
type Policy struct {
	nodes    topology.Mask
	tables   map[int]map[v1.ResourceName]state.MemoryTable
	podLevel topology.PodLevel
}

// New returns the policy that keeps reserved free for the system. whole is what
// systemReserved, kubeReserved and hard eviction come to; reserved must add up to the same.
// An error, in the kubelet's words, says what is wrong with the reservation.
func New(machine *layout.Layout, reserved []kubeletv1beta1.MemoryReservation, whole v1.ResourceList, podLevel topology.PodLevel) (*Policy, error) {
	p := &Policy{tables: map[int]map[v1.ResourceName]state.MemoryTable{}, podLevel: podLevel}
	perNode := map[int]map[v1.ResourceName]uint64{}
	for _, m := range machine.Memory {
		one, err := topology.MaskOf(m.Node)
		if err != nil {
			return nil, err
		}
		p.nodes |= one
		perNode[m.Node] = map[v1.ResourceName]uint64{}
	}
	if err := matches(reserved, whole, p.nodes); err != nil {
		return nil, err
	}
	system := uint64(0)
	for _, r := range reserved {
		for name, q := range r.Limits {
			n, ok := q.AsInt64()
			if !ok || n < 0 {
				return nil, fmt.Errorf("could not convert a variable of type Quantity to int64: %s of NUMA node %d is %s", name, r.NumaNode, q.String())
			}
			perNode[int(r.NumaNode)][name] = uint64(n)
			if name == v1.ResourceMemory {
				system += uint64(n)
			}
		}
	}
	if system == 0 {
		return nil, errors.New("[memorymanager] you should specify the system reserved memory")
	}
	for _, m := range machine.Memory {
		if err := p.add(m, perNode[m.Node]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// matches compares what is reserved on the nodes with what is reserved in all.
func matches(reserved []kubeletv1beta1.MemoryReservation, whole v1.ResourceList, nodes topology.Mask) error {
	sums := v1.ResourceList{}
	for name := range whole {
		if isMemory(name) {
			sums[name] = resource.Quantity{}
		}
	}
	for _, r := range reserved {
		if !nodes.Has(int(r.NumaNode)) {
			return fmt.Errorf("the reserved memory configuration references a NUMA node %d that does not exist on this machine", r.NumaNode)
		}
		for name, q := range r.Limits {
			sum := sums[name]
			sum.Add(q)
			sums[name] = sum
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		sum, want := resource.NewQuantity(0, resource.DecimalSI), resource.NewQuantity(0, resource.DecimalSI)
		sum.Add(sums[name])
		want.Add(whole[name])
		if sum.Cmp(*want) != 0 {
			return fmt.Errorf("the total amount %q of type %q is not equal to the value %q determined by Node Allocatable feature", sum.String(), name, want.String())
		}
	}
	return nil
}

// add adds a node. Memory is what is not huge pages.
func (p *Policy) add(m layout.Memory, reserved map[v1.ResourceName]uint64) error {
	tables := map[v1.ResourceName]state.MemoryTable{}
	set := func(name v1.ResourceName, total, pages uint64) error {
		t := state.MemoryTable{TotalMemSize: total, SystemReserved: reserved[name]}
		if t.SystemReserved+pages > total {
			return fmt.Errorf("NUMA node %d has %d bytes of type %q, of which %d are reserved and %d are huge pages", m.Node, total, name, t.SystemReserved, pages)
		}
		t.Allocatable = total - t.SystemReserved - pages
		t.Free = t.Allocatable
		tables[name] = t
		return nil
	}
	pages := uint64(0)
	for _, kib := range slices.Sorted(maps.Keys(m.HugePages)) {
		size := m.HugePages[kib] * kib << 10
		pages += size
		name := v1.ResourceHugePagesPrefix + resource.NewQuantity(int64(kib)<<10, resource.BinarySI).String()
		if err := set(v1.ResourceName(name), size, 0); err != nil {
			return err
		}
	}
	p.tables[m.Node] = tables
	return set(v1.ResourceMemory, m.Bytes, pages)
}

// Machine is what the nodes have left beside these blocks. Blocks of nodes or kinds of
// memory that the machine does not have count for nothing.
func (p *Policy) Machine(assigned []Assignment) state.NUMANodeMap {
	machine := state.NUMANodeMap{}
	for id, tables := range p.tables {
		n := &state.NUMANodeState{MemoryMap: map[v1.ResourceName]*state.MemoryTable{}, Cells: []int{id}}
		for name, t := range tables {
			n.MemoryMap[name] = &t
		}
		machine[id] = n
	}
	for _, a := range assigned {
		for _, b := range a.Blocks {
			if !a.Part {
				fill(machine, b.NUMAAffinity, b.Type, b.Size)
			}
		}
	}
	return machine
}

// fill takes size bytes from the nodes, from the lowest first.
func fill(machine state.NUMANodeMap, ids []int, kind v1.ResourceName, size uint64) {
	for _, id := range ids {
		n := machine[id]
		if n == nil {
			continue
		}
		n.NumberOfAssignments++
		n.Cells = ids
		t := n.MemoryMap[kind]
		if t == nil {
			continue
		}
		part := min(size, t.Free)
		t.Reserved += part
		t.Free -= part
		size -= part
	}
}

// Allocatable are the blocks that the nodes could give when nothing is given, by node and
// kind of memory.
func (p *Policy) Allocatable() (all []state.Block) {
	for _, id := range slices.Sorted(maps.Keys(p.tables)) {
		for _, name := range slices.Sorted(maps.Keys(p.tables[id])) {
			if n := p.tables[id][name].Allocatable; n > 0 {
				all = append(all, state.Block{NUMAAffinity: []int{id}, Type: name, Size: n})
			}
		}
	}
	return all
}

// Assignments are what pods have, by uid.
type Assignments map[string][]Assignment

// ReadState reads a kubelet's file. An error says what is wrong with it.
func ReadState(data []byte) (Assignments, error) {
	c, err := state.Decode(data)
	if err != nil {
		return nil, err
	}
	all := Assignments{}
	for uid, containers := range c.Entries {
		whole, parts := c.PodEntries[uid]
		if parts {
			all[uid] = append(all[uid], Assignment{UID: uid, Blocks: whole.MemoryBlocks})
		}
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			all[uid] = append(all[uid], Assignment{UID: uid, Container: name, Blocks: containers[name], Part: parts})
		}
	}
	return all, nil
}

// File is the kubelet's file for a policy, nil for None, and what containers and pods have,
// in the form of the kubelet's gate PodLevelResourceManagers.
func (p *Policy) File(assigned []Assignment, podLevel bool) ([]byte, error) {
	c := state.MemoryManagerCheckpoint{
		PolicyName: None, MachineState: state.NUMANodeMap{}, Entries: state.ContainerMemoryAssignments{}, PodEntries: state.PodMemoryAssignments{},
	}
	if p == nil {
		return c.Encode(podLevel)
	}
	c.PolicyName, c.MachineState = Static, p.Machine(assigned)
	for _, a := range assigned {
		if a.Container == "" {
			c.PodEntries[a.UID] = state.PodEntry{MemoryBlocks: a.Blocks}
			continue
		}
		if c.Entries[a.UID] == nil {
			c.Entries[a.UID] = map[string][]state.Block{}
		}
		c.Entries[a.UID][a.Container] = a.Blocks
	}
	return c.Encode(podLevel)
}
