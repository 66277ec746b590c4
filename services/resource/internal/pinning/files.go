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
// node over goes on from them. Of awaited pods they have what was found, as far as it fits.
func (p *Policies) Files(held []allocate.Held, awaited func(uid string) bool) (map[string][]byte, error) {
	waits := p.awaits(held, awaited)
	cpus, err := p.cpus.File(p.cpusOf(held, waits), bool(p.podLevel))
	if err != nil {
		return nil, err
	}
	memory, err := p.memory.File(p.memoryOf(held, waits), bool(p.podLevel))
	return map[string][]byte{cpustate.Name: cpus, memorystate.Name: memory}, err
}

// WasFound reports whether a pod had CPUs or memory of its own with the agent before.
func (p *Policies) WasFound(uid string) bool {
	return len(p.found.CPUs[uid].Containers) > 0 || len(p.found.Memory[uid]) > 0
}

// awaits are the pods that had CPUs or memory of their own with the agent before, hold
// nothing yet, and are awaited; sorted.
func (p *Policies) awaits(held []allocate.Held, awaited func(uid string) bool) (uids []string) {
	known := map[string]bool{}
	for _, h := range held {
		known[string(h.Pod.UID)] = true
	}
	consider := func(uid string) {
		if !known[uid] && p.WasFound(uid) && awaited(uid) {
			uids = append(uids, uid)
		}
		known[uid] = true
	}
	for uid := range p.found.CPUs {
		consider(uid)
	}
	for uid := range p.found.Memory {
		consider(uid)
	}
	slices.Sort(uids)
	return uids
}

// cpusOf are the CPUs of their own that pods hold and that awaited ones were found with.
// Where both claim the same, the checkpoint is of a time before the kubelet's file.
func (p *Policies) cpusOf(held []allocate.Held, awaited []string) cpumanager.Assignments {
	if p.cpus == nil {
		return nil
	}
	found := cpumanager.Assignments{}
	for _, uid := range awaited {
		had := p.found.CPUs[uid]
		if union := had.Union(); !union.IsEmpty() && union.IsSubsetOf(p.cpus.Available(found)) {
			found[uid] = had
		}
	}
	all := Assigned(Without(held, found.Union()))
	maps.Copy(all, found)
	return all
}

// memoryOf is the memory of their own that pods hold and that awaited ones were found with.
func (p *Policies) memoryOf(held []allocate.Held, awaited []string) []memorymanager.Assignment {
	if p.memory == nil {
		return nil
	}
	all := memoryOf(held)
	for _, uid := range awaited {
		all = append(all, p.foundFor(uid, p.filed(all))...)
	}
	return all
}

// filed are those assignments that are of pods in the kubelet's file.
func (p *Policies) filed(all []memorymanager.Assignment) []memorymanager.Assignment {
	return slices.DeleteFunc(slices.Clone(all), func(a memorymanager.Assignment) bool { return len(p.found.Memory[a.UID]) == 0 })
}
