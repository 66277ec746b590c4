// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/cpumanager"
	"github.com/sextant-node/sextant/services/resource/internal/devices"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// Decide chooses for a pod, its devices of plugins among them. One that runs keeps the CPUs
// and the memory it was found with, and gets nothing else.
func (p *Policies) Decide(r allocate.Request, plugins *devices.Choice) (answer allocate.Answer, tally Tally) {
	answer = allocate.Answer{Decision: resourcev1.Decision_DECISION_ADMITTED, Chosen: r.Chosen}
	if r.Running {
		p.keep(answer.Chosen, r)
		p.keepMemory(answer.Chosen, r)
		return answer, tally
	}
	providers := []topology.Provider{plugins}
	var cpus *cpumanager.Admission
	if p.cpus != nil {
		cpus = p.cpus.Admission(Assigned(r.Held))
		providers = append(providers, cpus)
	}
	var memory *memorymanager.Admission
	if p.memory != nil {
		memory = p.memory.Admission(memoryOf(r.Held))
		providers = append(providers, memory)
	}
	o := cmp.Or(p.topology, &topology.Policy{}).Admit(r.Pod, providers)
	tally.Scope, tally.Refused, tally.Aligned, tally.Misaligned = o.Scope, o.Refusal != nil, o.Aligned, o.Misaligned
	if cpus != nil {
		tally.CPUs = cpus.Counts
	}
	if memory != nil {
		tally.Memory = memory.Counts
	}
	if p.podLevel {
		tally.Pools = map[v1.ResourceName]topology.Counts{v1.ResourceCPU: tally.CPUs.Counts, v1.ResourceMemory: tally.Memory.Counts}
	}
	if o.Refusal != nil {
		return allocate.Answer{Decision: resourcev1.Decision_DECISION_REJECTED, Reason: o.Refusal.Reason, Message: o.Refusal.Message}, tally
	}
	for _, g := range plugins.Given() {
		c := allocate.Container(answer.Chosen, g.Container)
		c.PluginDevices = append(c.PluginDevices, g.Record())
	}
	if cpus != nil {
		p.record(answer.Chosen, r.Pod, cpus.Given)
	}
	if memory != nil {
		recordPodMemory(answer.Chosen, memory.Pod)
		for _, c := range pod.Containers(r.Pod) {
			recordMemory(answer.Chosen, c.Name, memory.Blocks[c.Name])
		}
	}
	return answer, tally
}
