// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"maps"
	"slices"

	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/cpumanager"
	cpustate "github.com/sextant-node/sextant/services/resource/internal/cpumanager/state"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager"
	memorystate "github.com/sextant-node/sextant/services/resource/internal/memorymanager/state"
)

// Files are the kubelet's state files for what pods hold, by name: a kubelet that takes the
// node over goes on from them. Of pods that are not held yet and that awaited expects, they
// have what was found, as far as it fits.
func (p *Policies) Files(held []allocate.Held, awaited func(uid string) bool) (map[string][]byte, error) {
	known := map[string]bool{}
	for _, h := range held {
		known[string(h.Pod.UID)] = true
	}
	waits := func(uid string) bool { return !known[uid] && awaited(uid) }
	cpus, err := p.cpus.File(p.withFoundCPUs(Assigned(held), waits), bool(p.podLevel))
	if err != nil {
		return nil, err
	}
	memory, err := p.memory.File(p.withFoundMemory(memoryOf(held), waits), bool(p.podLevel))
	return map[string][]byte{cpustate.Name: cpus, memorystate.Name: memory}, err
}

// WasFound reports whether a pod had CPUs or memory of its own with the agent before.
func (p *Policies) WasFound(uid string) bool {
	return len(p.found.CPUs[uid].Containers) > 0 || len(p.found.Memory[uid]) > 0
}

func (p *Policies) withFoundCPUs(assigned cpumanager.Assignments, waits func(uid string) bool) cpumanager.Assignments {
	if p.cpus == nil {
		return nil
	}
	for _, uid := range slices.Sorted(maps.Keys(p.found.CPUs)) {
		had := p.found.CPUs[uid]
		if union := had.Union(); waits(uid) && !union.IsEmpty() && union.IsSubsetOf(p.cpus.Available(assigned)) {
			assigned[uid] = had
		}
	}
	return assigned
}

func (p *Policies) withFoundMemory(assigned []memorymanager.Assignment, waits func(uid string) bool) []memorymanager.Assignment {
	if p.memory == nil {
		return nil
	}
	for _, uid := range slices.Sorted(maps.Keys(p.found.Memory)) {
		if waits(uid) {
			assigned = append(assigned, p.foundFor(uid, assigned)...)
		}
	}
	return assigned
}
