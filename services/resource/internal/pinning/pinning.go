// SPDX-License-Identifier: Apache-2.0

// Package pinning has pods get devices, CPUs and memory where the topology policy wants
// them: it is the allocator of what NUMA nodes have. It is pure: a configuration, the machine's layout,
// plugins' devices and what pods hold in, what a pod is to have out.
package pinning

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/cpumanager"
	"github.com/sextant-node/sextant/services/resource/internal/layout"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// Policies are those of a configuration on a machine. The zero value pins nothing.
type Policies struct {
	machine  *layout.Layout
	topology *topology.Policy
	cpus     *cpumanager.Policy    // nil: the policy none
	memory   *memorymanager.Policy // nil: the policy None
	noQuota  bool
	podLevel topology.PodLevel
	found    Found
}

// Found is what pods had with the agent before, by its files: those that run keep it.
type Found struct {
	CPUs   cpumanager.Assignments
	Memory memorymanager.Assignments
}

// Pins reports whether a configuration asks for a layout at all.
func Pins(conf *kubeletconfig.Config) bool {
	k := &conf.Kubelet
	return k.CPUManagerPolicy == cpumanager.Static || k.MemoryManagerPolicy == memorymanager.Static ||
		k.TopologyManagerPolicy != topology.None && k.TopologyManagerPolicy != ""
}

// New returns the policies of a configuration; reserved is what pods never get of the node.
// An error names the field, or what the machine lacks for it.
func New(conf *kubeletconfig.Config, machine *layout.Layout, reserved v1.ResourceList, found Found) (*Policies, error) {
	k := &conf.Kubelet
	p := &Policies{machine: machine, noQuota: conf.Gate("DisableCPUQuotaWithExclusiveCPUs"), podLevel: topology.PodLevel(conf.Gate("PodLevelResourceManagers")), found: found}
	var nodes []topology.Node
	for _, m := range machine.Memory {
		nodes = append(nodes, topology.Node{ID: m.Node, Distances: m.Distances})
	}
	var err error
	p.topology, err = topology.New(topology.Settings{
		Policy: k.TopologyManagerPolicy, Scope: k.TopologyManagerScope, Options: k.TopologyManagerPolicyOptions, PodLevel: p.podLevel,
	}, nodes)
	if err != nil {
		return nil, err
	}
	if k.MemoryManagerPolicy == memorymanager.Static {
		if p.memory, err = memorymanager.New(machine, k.ReservedMemory, reserved, p.podLevel); err != nil {
			return nil, fmt.Errorf("reservedMemory: %w", err)
		}
	}
	if k.CPUManagerPolicy != cpumanager.Static {
		return p, nil
	}
	options, err := cpumanager.ParseOptions(k.CPUManagerPolicyOptions, cpumanager.Gates{
		Alpha: conf.Gate("CPUManagerPolicyAlphaOptions"), Beta: conf.Gate("CPUManagerPolicyBetaOptions"),
	})
	if err != nil {
		return nil, fmt.Errorf("cpuManagerPolicyOptions: %w", err)
	}
	options.PodLevel = p.podLevel
	system, kube := conf.SystemReserved(), conf.KubeReserved()
	milli := system.Cpu().MilliValue() + kube.Cpu().MilliValue()
	p.cpus, err = cpumanager.New(machine, options, int(milli+999)/1000, conf.ReservedCPUs(), p.topology)
	return p, err
}

// Tally is what metrics count of a decision.
type Tally struct {
	// Scope is that of the topology policy, "" with the policy none.
	Scope   string
	Refused bool
	// Aligned and Misaligned are topology.Outcome's.
	Aligned, Misaligned int
	CPUs                cpumanager.Counts
	Memory              memorymanager.Counts
	// Pools are the counts of metrics that a kubelet has with the gate
	// PodLevelResourceManagers alone, by resource; nil without it.
	Pools map[v1.ResourceName]topology.Counts
}

// keep records the CPUs and the memory that a running pod had, and says what it does not
// keep, as others have it.
func (p *Policies) keep(r allocate.Request) allocate.Answer {
	answer := allocate.Answer{Decision: resourcev1.Decision_DECISION_ADMITTED, Chosen: r.Chosen}
	var lost []string
	awaited := r.Awaited(string(r.Pod.UID))
	if cpus := p.keepCPUs(answer.Chosen, r, awaited); !cpus.IsEmpty() {
		lost = append(lost, "CPUs "+cpus.String())
	}
	if !p.keepMemory(answer.Chosen, r, awaited) {
		lost = append(lost, "memory")
	}
	if len(lost) > 0 {
		answer.Reason, answer.Message = Lost, "other pods have what it had of its own with the kubelet: "+strings.Join(lost, ", ")
	}
	return answer
}

// Lost is the reason of an event about a running pod that does not keep what it had of its own.
const Lost = "LostExclusiveResources"

// keepCPUs records the CPUs that a running pod's containers had, and returns those that they
// do not keep. An awaited pod keeps all: nothing else was given them since the kubelet wrote
// its file, and who has them by the checkpoint had lost them before that.
func (p *Policies) keepCPUs(chosen *resourcev1.Chosen, r allocate.Request, awaited bool) (lost cpuset.CPUSet) {
	had := p.found.CPUs[string(r.Pod.UID)]
	if p.cpus == nil {
		return cpuset.New()
	}
	taken := cpuset.New()
	if !awaited {
		taken = Assigned(r.Held).Union()
	}
	if !had.Pod.Intersection(taken).IsEmpty() {
		return had.Pod
	}
	kept := cpumanager.Assignment{Pod: had.Pod, Containers: map[string]cpuset.CPUSet{}}
	for name, cpus := range had.Containers {
		if cpus.Intersection(taken).IsEmpty() {
			kept.Containers[name] = cpus
		}
	}
	p.record(chosen, r.Pod, kept)
	return had.Union().Difference(kept.Union())
}

// Without are pods without the CPUs that others have: a container or a pod that has one of
// them has none of its own.
func Without(held []allocate.Held, taken cpuset.CPUSet) []allocate.Held {
	all := slices.Clone(held)
	for i, h := range held {
		if Own(h.Chosen).Intersection(taken).IsEmpty() {
			continue
		}
		chosen := proto.CloneOf(h.Chosen)
		whole, _ := cpuset.Parse(chosen.GetCpusetCpus())
		if whole = whole.Intersection(taken); !whole.IsEmpty() {
			chosen.CpusetCpus = ""
		}
		for _, c := range chosen.GetContainers() {
			own, _ := cpuset.Parse(c.GetCpusetCpus())
			if !whole.IsEmpty() || !own.Intersection(taken).IsEmpty() {
				c.CpusetCpus, c.ExclusiveCpus = "", false
			}
		}
		all[i].Chosen = chosen
	}
	return all
}

// Overlap are the pods that have CPUs of their own which are also another's.
func Overlap(held []allocate.Held, with *resourcev1.Chosen) (uids []string) {
	own := Own(with)
	for _, h := range held {
		if !Own(h.Chosen).Intersection(own).IsEmpty() {
			uids = append(uids, string(h.Pod.UID))
		}
	}
	return uids
}

// StillThere is the error, in the kubelet's words, of a pod that has CPUs or memory of its own
// which the machine does not have any more.
func (p *Policies) StillThere(chosen *resourcev1.Chosen) error {
	if own := Own(chosen); p.cpus != nil && !own.Difference(p.machine.All()).IsEmpty() {
		return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", own.Size(), own.Intersection(p.machine.All()).Size())
	}
	if p.memory == nil {
		return nil
	}
	for _, a := range memoryOf([]allocate.Held{{Pod: &v1.Pod{}, Chosen: chosen}}) {
		if !a.Part && !p.memory.Fits(nil, a.Blocks) {
			return memorymanager.ErrNoNodes
		}
	}
	return nil
}

// Own are all CPUs that a pod has of its own.
func Own(chosen *resourcev1.Chosen) cpuset.CPUSet {
	return Assigned([]allocate.Held{{Pod: &v1.Pod{}, Chosen: chosen}}).Union()
}

// record notes the CPUs that a pod has of its own. Of those that it has as a whole, only
// containers that are Guaranteed by themselves have their parts alone.
func (p *Policies) record(chosen *resourcev1.Chosen, of *v1.Pod, given cpumanager.Assignment) {
	chosen.CpusetCpus = given.Pod.String()
	for _, c := range pod.Containers(of) {
		cpus := given.Containers[c.Name]
		if cpus.IsEmpty() {
			continue
		}
		out := allocate.Container(chosen, c.Name)
		out.CpusetCpus, out.ExclusiveCpus = cpus.String(), p.noQuota && (given.Pod.IsEmpty() || p.cpus.Exclusive(of, c) > 0)
	}
}

// Shared are the CPUs of containers that have none of their own, as text; empty when
// containers are not pinned. Those of awaited pods are not among them.
func (p *Policies) Shared(held []allocate.Held, awaited func(uid string) bool) string {
	if p.cpus == nil {
		return ""
	}
	return p.cpus.Shared(p.cpusOf(held, p.awaits(held, awaited))).String()
}

// Allocatable are the CPUs that containers can have of their own.
func (p *Policies) Allocatable() cpuset.CPUSet {
	if p.cpus == nil {
		return cpuset.New()
	}
	return p.cpus.Available(nil)
}

// Usage is what metrics show of CPUs.
type Usage struct {
	// SharedMilli is the size of what is shared and not reserved, Exclusive the number of
	// CPUs that containers have of their own, by NUMA node too.
	SharedMilli, Exclusive int
	Nodes                  map[int]int
}

// Usage is what pods have; nothing when containers are not pinned.
func (p *Policies) Usage(held []allocate.Held) Usage {
	if p.cpus == nil {
		return Usage{}
	}
	assigned := Assigned(held)
	u := Usage{SharedMilli: 1000 * p.cpus.Available(assigned).Size(), Exclusive: assigned.Union().Size(), Nodes: map[int]int{}}
	for _, id := range p.machine.Units(layout.Node) {
		u.Nodes[id] = 0
	}
	for _, c := range p.machine.Of(assigned.Union()) {
		u.Nodes[c.Node]++
	}
	return u
}

// Assigned are the CPUs that containers have of their own. What is not a list of CPUs
// counts as none.
func Assigned(held []allocate.Held) cpumanager.Assignments {
	all := cpumanager.Assignments{}
	for _, h := range held {
		whole, _ := cpuset.Parse(h.Chosen.GetCpusetCpus())
		of := cpumanager.Assignment{Pod: whole, Containers: map[string]cpuset.CPUSet{}}
		for _, c := range h.Chosen.GetContainers() {
			if set, err := cpuset.Parse(c.GetCpusetCpus()); err == nil && !set.IsEmpty() {
				of.Containers[c.GetName()] = set
			}
		}
		if len(of.Containers) > 0 {
			all[string(h.Pod.UID)] = of
		}
	}
	return all
}

// Unlimited reports whether the pod's cgroup has no CFS quota: a container has CPUs of its
// own and no quota, or all have that in a pod with resources of its own.
func Unlimited(p *v1.Pod, chosen *resourcev1.Chosen) bool {
	free := map[string]bool{}
	for _, c := range chosen.GetContainers() {
		if c.GetExclusiveCpus() {
			free[c.GetName()] = true
		}
	}
	if !resourcehelper.IsPodLevelResourcesSet(p) {
		return len(free) > 0
	}
	return len(free) == len(p.Spec.InitContainers)+len(p.Spec.Containers)
}
