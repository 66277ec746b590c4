// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"maps"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/cpumanager"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager/state"
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
	cpus, err := p.cpus.File(p.withFoundCPUs(Assigned(held), waits))
	if err != nil {
		return nil, err
	}
	memory, err := p.memory.File(p.withFoundMemory(memoryOf(held), waits))
	return map[string][]byte{cpumanager.StateFile: cpus, state.Name: memory}, err
}

// WasFound reports whether a pod had CPUs or memory of its own with the agent before.
func (p *Policies) WasFound(uid string) bool {
	return p.found.CPUs[uid] != nil || p.found.Memory[uid] != nil
}

func (p *Policies) withFoundCPUs(assigned cpumanager.Assignments, waits func(uid string) bool) cpumanager.Assignments {
	if p.cpus == nil {
		return nil
	}
	for _, uid := range slices.Sorted(maps.Keys(p.found.CPUs)) {
		had := p.found.CPUs[uid]
		if union := (cpumanager.Assignments{uid: had}).Union(); waits(uid) && !union.IsEmpty() && union.IsSubsetOf(p.cpus.Available(assigned)) {
			assigned[uid] = map[string]cpuset.CPUSet{}
			maps.Copy(assigned[uid], had)
		}
	}
	return assigned
}

func (p *Policies) withFoundMemory(assigned []memorymanager.Assignment, waits func(uid string) bool) []memorymanager.Assignment {
	if p.memory == nil {
		return nil
	}
	for _, uid := range slices.Sorted(maps.Keys(p.found.Memory)) {
		had := p.found.Memory[uid]
		for _, name := range slices.Sorted(maps.Keys(had)) {
			if waits(uid) && p.memory.Fits(assigned, had[name]) {
				assigned = append(assigned, memorymanager.Assignment{UID: uid, Container: name, Blocks: had[name]})
			}
		}
	}
	return assigned
}
