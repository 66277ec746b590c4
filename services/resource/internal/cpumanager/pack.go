// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/services/resource/internal/layout"
)

// picker takes CPUs out of those that are free.
type picker struct {
	machine *layout.Layout
	options Options
	free    []layout.CPU // ascending
	taken   []int
	need    int
}

func newPicker(machine *layout.Layout, options Options, free cpuset.CPUSet, need int) *picker {
	return &picker{machine: machine, options: options, free: machine.Of(free), need: need}
}

// take takes CPUs, if they are free, and counts all of them.
func (p *picker) take(cpus ...layout.CPU) {
	for _, c := range cpus {
		p.taken = append(p.taken, c.ID)
	}
	p.need -= len(cpus)
	p.free = slices.DeleteFunc(slices.Clone(p.free), func(c layout.CPU) bool { return slices.Contains(cpus, c) })
}

func (p *picker) set() cpuset.CPUSet { return cpuset.New(p.taken...) }

// enough is nil while what is needed can be had.
func (p *picker) enough() error {
	if p.need > len(p.free) {
		return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", p.need, len(p.free))
	}
	return nil
}

// ranked are the units of a level that have CPUs among these: those with the fewest free
// CPUs first, then by id.
func (p *picker) ranked(among []layout.CPU, level layout.Level) []int {
	left := map[int]int{}
	for _, c := range p.free {
		left[c.Unit(level)]++
	}
	units := layout.Units(among, level)
	slices.SortStableFunc(units, func(a, b int) int { return cmp.Compare(left[a], left[b]) })
	return units
}

// nested are the units of the last level with free CPUs: those of the first unit of the
// level before, ranked, then those of the second, and so on from the first level down.
func (p *picker) nested(levels ...layout.Level) []int {
	units := p.ranked(p.free, levels[0])
	for i := 1; i < len(levels); i++ {
		var inner []int
		for _, unit := range units {
			inner = append(inner, p.ranked(layout.In(p.free, levels[i-1], unit), levels[i])...)
		}
		units = inner
	}
	return units
}

// outermost are the levels socket and node, the one with the larger units first.
func (p *picker) outermost() []layout.Level {
	if len(p.machine.Units(layout.Socket)) >= len(p.machine.Units(layout.Node)) {
		return []layout.Level{layout.Node, layout.Socket}
	}
	return []layout.Level{layout.Socket, layout.Node}
}

// down are the levels from the outermost to this one.
func (p *picker) down(to layout.Level) []layout.Level {
	outer := p.outermost()
	switch {
	case outer[0] == to:
		return outer[:1]
	case outer[1] == to:
		return outer
	case to == layout.Cache: // caches are looked for in NUMA nodes
		return append(slices.Clone(p.down(layout.Node)), to)
	default:
		return append(slices.Clone(outer), to)
	}
}

// wholeUnits takes units of a level all of whose CPUs are free, while as many are needed.
// Where cores or sockets differ in size, a unit counts as whole when it has the average;
// unlike the kubelet's, such a unit is never taken with CPUs that are not free.
func (p *picker) wholeUnits(level layout.Level) {
	var whole [][]layout.CPU
	for _, unit := range p.nested(p.down(level)...) {
		all := layout.In(p.machine.CPUs, level, unit)
		size := len(all)
		if level == layout.Core || level == layout.Socket { // these count by the machine's average
			size = p.machine.PerUnit(level)
		}
		if free := len(layout.In(p.free, level, unit)); free == size && free == len(all) {
			whole = append(whole, all)
		}
	}
	for _, all := range whole {
		if p.need >= len(all) {
			p.take(all...)
		}
	}
}

// caches takes whole caches, then the first cache that has exactly what is still needed.
func (p *picker) caches() {
	per := p.machine.PerUnit(layout.Cache)
	for _, cache := range p.nested(p.down(layout.Cache)...) {
		if p.need >= per {
			p.wholeUnits(layout.Cache)
		}
		if p.need > 0 {
			p.partOfCache(cache)
		}
		if p.need <= 0 {
			return
		}
	}
}

// partOfCache takes the free CPUs of as many of the cache's cores as are needed, lowest
// cores first, when they are just what is needed; an odd need leaves the last CPU out.
func (p *picker) partOfCache(cache int) {
	per := p.machine.PerUnit(layout.Core)
	cores := layout.Units(layout.In(p.free, layout.Cache, cache), layout.Core)
	if n := (p.need + per - 1) / per; len(cores) > n {
		cores = cores[:n]
	}
	cpus := layout.In(p.free, layout.Core, cores...)
	if p.need%2 != 0 && per > 1 && len(cpus) > p.need {
		cpus = cpus[:len(cpus)-1]
	}
	if len(cpus) == p.need {
		p.take(cpus...)
	}
}

// single takes single CPUs: core by core, or with AcrossCores socket by socket.
func (p *picker) single() {
	level := layout.Core
	if p.options.AcrossCores {
		level = layout.Socket
	}
	for _, unit := range p.nested(p.down(level)...) {
		for _, c := range layout.In(p.free, level, unit) {
			if p.need <= 0 {
				return
			}
			p.take(c)
		}
	}
}

// pack chooses need CPUs of those that are free, on as few units as can be: whole sockets
// and NUMA nodes, whole caches with ByCache, whole cores, then what is left over. Of
// units alike it takes those with the fewest free CPUs, so that large ones stay whole.
func pack(machine *layout.Layout, options Options, free cpuset.CPUSet, need int) (cpuset.CPUSet, error) {
	p := newPicker(machine, options, free, need)
	if err := p.enough(); err != nil {
		return cpuset.CPUSet{}, err
	}
	outer := p.outermost()
	steps := []func(){func() { p.wholeUnits(outer[0]) }, func() { p.wholeUnits(outer[1]) }}
	if options.ByCache {
		steps = append(steps, p.caches)
	}
	if !options.AcrossCores {
		steps = append(steps, func() { p.wholeUnits(layout.Core) })
	}
	for _, step := range append(steps, p.single) {
		if p.need <= 0 {
			break
		}
		step()
	}
	if p.need > 0 {
		return cpuset.CPUSet{}, errors.New("failed to allocate cpus")
	}
	return p.set(), nil
}
