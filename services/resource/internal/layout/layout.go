// SPDX-License-Identifier: Apache-2.0

// Package layout says how the CPUs and the memory of a machine lie: which CPUs are
// threads of a core, which cores share a cache, a socket, a NUMA node. It is pure: a
// Layout is read from the machine by package machine, and from text by Parse.
package layout

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"
)

// CPU is a logical CPU that is online, and the units it is part of.
type CPU struct {
	ID int
	// Core is the lowest id of the CPUs that are threads of the same core.
	Core int
	// Cache is the id of the cache of level 3 or more that cores of a part of the NUMA node
	// share, or the socket's id where there is none.
	Cache int
	// Socket is the physical package's id, Node the NUMA node's.
	Socket, Node int
}

// Level is a kind of unit that CPUs are part of.
type Level int

// Levels, from the smallest unit.
const (
	Core Level = iota
	Cache
	Socket
	Node
)

// Unit is the id of the CPU's unit of a level.
func (c CPU) Unit(l Level) int {
	switch l {
	case Core:
		return c.Core
	case Cache:
		return c.Cache
	case Socket:
		return c.Socket
	default:
		return c.Node
	}
}

// Memory is what a NUMA node has.
type Memory struct {
	Node int
	// Bytes in all, huge pages included.
	Bytes uint64
	// HugePages are numbers of pages by their size in KiB.
	HugePages map[uint64]uint64
	// Distances to the nodes by their ids; nil when the kernel does not say.
	Distances []uint64
}

// Layout is a machine's. Its CPUs are in the order of their ids, its nodes too.
type Layout struct {
	CPUs   []CPU
	Memory []Memory
}

// New returns the layout of these, in order; an error says which id comes twice, or that
// there is no CPU.
func New(cpus []CPU, memory []Memory) (*Layout, error) {
	l := &Layout{CPUs: slices.Clone(cpus), Memory: slices.Clone(memory)}
	slices.SortFunc(l.CPUs, func(a, b CPU) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(l.Memory, func(a, b Memory) int { return cmp.Compare(a.Node, b.Node) })
	for i := 1; i < len(l.CPUs); i++ {
		if l.CPUs[i].ID == l.CPUs[i-1].ID {
			return nil, fmt.Errorf("cpu %d is there twice", l.CPUs[i].ID)
		}
	}
	for i := 1; i < len(l.Memory); i++ {
		if l.Memory[i].Node == l.Memory[i-1].Node {
			return nil, fmt.Errorf("node %d is there twice", l.Memory[i].Node)
		}
	}
	if len(l.CPUs) == 0 {
		return nil, errors.New("no cpu")
	}
	return l, nil
}

// All are the ids of all CPUs.
func (l *Layout) All() cpuset.CPUSet { return Set(l.CPUs) }

// Units are the ids of a level's units, ascending.
func (l *Layout) Units(level Level) []int { return Units(l.CPUs, level) }

// Units are the ids of a level's units that these CPUs are part of, ascending.
func Units(cpus []CPU, level Level) []int {
	ids := make([]int, 0, len(cpus))
	for _, c := range cpus {
		ids = append(ids, c.Unit(level))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// PerUnit is how many CPUs a unit of a level has: the average over the machine, rounded
// down, as the kubelet has it.
func (l *Layout) PerUnit(level Level) int { return len(l.CPUs) / len(l.Units(level)) }

// In are the CPUs of these units of a level.
func (l *Layout) In(level Level, units ...int) cpuset.CPUSet {
	return Set(In(l.CPUs, level, units...))
}

// In are those of the CPUs that are part of these units of a level.
func In(cpus []CPU, level Level, units ...int) []CPU {
	var in []CPU
	for _, c := range cpus {
		if slices.Contains(units, c.Unit(level)) {
			in = append(in, c)
		}
	}
	return in
}

// Of are the CPUs with these ids, in order; ids that the machine does not have are left out.
func (l *Layout) Of(ids cpuset.CPUSet) []CPU {
	of := make([]CPU, 0, ids.Size())
	for _, c := range l.CPUs {
		if ids.Contains(c.ID) {
			of = append(of, c)
		}
	}
	return of
}

// Set are the ids of CPUs.
func Set(cpus []CPU) cpuset.CPUSet {
	ids := make([]int, 0, len(cpus))
	for _, c := range cpus {
		ids = append(ids, c.ID)
	}
	return cpuset.New(ids...)
}
