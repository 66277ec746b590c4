// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"cmp"
	"strings"

	"google.golang.org/protobuf/proto"
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
// and the memory it was found with, and gets nothing else. One that would fit but for what
// awaited pods have waits for those: they may have ended.
func (p *Policies) Decide(r allocate.Request, plugins *devices.Choice) (answer allocate.Answer, tally Tally) {
	if r.Running {
		return p.keep(r), tally
	}
	waits := p.awaits(r.Held, func(uid string) bool { return uid != string(r.Pod.UID) && r.Awaited(uid) })
	if len(waits) == 0 {
		return p.choose(r, nil, plugins)
	}
	chosen, again := proto.CloneOf(r.Chosen), plugins.Again()
	answer, tally = p.choose(r, waits, plugins)
	if answer.Decision != resourcev1.Decision_DECISION_REJECTED {
		return answer, tally
	}
	r.Chosen = chosen
	if without, _ := p.choose(r, nil, again); without.Decision == resourcev1.Decision_DECISION_ADMITTED {
		return allocate.Answer{
			Decision: resourcev1.Decision_DECISION_NOT_YET,
			Message:  "waiting for what becomes of pods that had CPUs or memory of their own with the kubelet: " + strings.Join(waits, ", "),
		}, Tally{}
	}
	return answer, tally
}

// choose chooses beside what other pods have, and those that are awaited.
func (p *Policies) choose(r allocate.Request, awaited []string, plugins *devices.Choice) (answer allocate.Answer, tally Tally) {
	answer = allocate.Answer{Decision: resourcev1.Decision_DECISION_ADMITTED, Chosen: r.Chosen}
	providers := []topology.Provider{plugins}
	var cpus *cpumanager.Admission
	if p.cpus != nil {
		cpus = p.cpus.Admission(p.cpusOf(r.Held, awaited))
		providers = append(providers, cpus)
	}
	var memory *memorymanager.Admission
	if p.memory != nil {
		memory = p.memory.Admission(p.memoryOf(r.Held, awaited))
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
