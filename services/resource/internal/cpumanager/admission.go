// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/layout"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// Counts are what metrics count of an admission.
type Counts struct {
	// Requests are containers that were to have CPUs of their own; Errors those that could not.
	Requests, Errors int
	// Cores counts containers with whole cores, NoCores those that could not have them; both
	// only with FullCores. Caches counts containers whose CPUs share one cache.
	Cores, NoCores, Caches int
	topology.Counts
}

// Admission chooses CPUs for the containers of one pod. It is a topology.Provider.
type Admission struct {
	policy *Policy
	shared cpuset.CPUSet
	// reusable are CPUs of init containers that have ended when the next one starts.
	reusable cpuset.CPUSet
	// Given so far.
	Given  Assignment
	Counts Counts
}

// Admission begins one, beside what other pods have.
func (p *Policy) Admission(assigned Assignments) *Admission {
	return &Admission{policy: p, shared: p.Shared(assigned), reusable: cpuset.New(), Given: Assignment{Containers: map[string]cpuset.CPUSet{}}}
}

func (a *Admission) available() cpuset.CPUSet { return a.shared.Difference(a.policy.reserved) }

// Hints implements topology.Provider.
func (a *Admission) Hints(p *v1.Pod, c *v1.Container) topology.Hints {
	return a.hints(a.policy.Exclusive(p, c))
}

// PodHints implements topology.Provider.
func (a *Admission) PodHints(p *v1.Pod) topology.Hints {
	need := a.policy.exclusiveOf(p)
	if need > 0 && a.policy.options.PodLevel.AsWhole(p) && a.policy.shortage(p, need) != nil {
		return topology.Hints{string(v1.ResourceCPU): {}} // impossible
	}
	return a.hints(need)
}

// hints are the sets of NUMA nodes that have need CPUs to give, and among them all that
// are to be used again. Those with the fewest nodes that could have so many are preferred.
func (a *Admission) hints(need int) topology.Hints {
	if need == 0 {
		return nil
	}
	machine := a.policy.machine
	all, err := topology.MaskOf(machine.Units(layout.Node)...)
	if err != nil { // such a machine has no topology policy either
		return nil
	}
	total, free := perNode(machine.CPUs), perNode(machine.Of(a.available()))
	reusable := perNode(machine.Of(a.reusable))
	fewest := all.Len()
	hints := []topology.Hint{}
	for mask := range all.Subsets() {
		if sum(total, mask) >= need {
			fewest = min(fewest, mask.Len())
		}
		if again := sum(reusable, mask); again == a.reusable.Size() && again+sum(free, mask) >= need {
			hints = append(hints, topology.Hint{Affinity: mask})
		}
	}
	for i, h := range hints {
		hints[i].Preferred = h.Affinity.Len() == fewest || a.policy.options.BySocket && a.onSockets(h.Affinity, fewest)
	}
	return topology.Hints{string(v1.ResourceCPU): hints}
}

func perNode(cpus []layout.CPU) map[int]int {
	n := map[int]int{}
	for _, c := range cpus {
		n[c.Node]++
	}
	return n
}

func sum(counts map[int]int, mask topology.Mask) int {
	n := 0
	for _, id := range mask.IDs() {
		n += counts[id]
	}
	return n
}

// onSockets reports whether nodes are on as few sockets as fewest nodes need.
func (a *Admission) onSockets(nodes topology.Mask, fewest int) bool {
	machine := a.policy.machine
	perSocket := len(machine.Units(layout.Node)) / len(machine.Units(layout.Socket))
	if perSocket == 0 {
		return false
	}
	return len(a.socketsOf(nodes)) == ceil(fewest, perSocket)
}

func (a *Admission) socketsOf(nodes topology.Mask) []int {
	return layout.Units(layout.In(a.policy.machine.CPUs, layout.Node, nodes.IDs()...), layout.Socket)
}

// Allocate implements topology.Provider.
func (a *Admission) Allocate(p *v1.Pod, c *v1.Container, affinity topology.Hint) error {
	need := a.policy.Exclusive(p, c)
	if need == 0 {
		return nil
	}
	a.Counts.Requests++
	cpus, err := a.allocate(need, affinity.Affinity)
	if err != nil {
		a.Counts.Errors++
		a.Counts.NodeErrors++
		if a.policy.options.FullCores {
			a.Counts.NoCores++
		}
		return err
	}
	if a.policy.options.FullCores {
		a.Counts.Cores++
	}
	a.Counts.Node++
	a.Counts.Exclusive++
	a.take(cpus)
	a.Given.Containers[c.Name] = cpus
	if endsBefore(p, c) {
		a.reusable = a.reusable.Union(cpus)
	} else {
		a.reusable = a.reusable.Difference(cpus)
	}
	return nil
}

// take removes CPUs from those that are shared.
func (a *Admission) take(cpus cpuset.CPUSet) {
	if len(layout.Units(a.policy.machine.Of(cpus), layout.Cache)) <= 1 {
		a.Counts.Caches++
	}
	a.shared = a.shared.Difference(cpus)
}

// endsBefore reports whether the container ends before the next one starts.
func endsBefore(p *v1.Pod, c *v1.Container) bool {
	return !pod.IsSidecar(c) && slices.ContainsFunc(p.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name })
}

// allocate chooses from the NUMA nodes of the affinity first, then from all others.
func (a *Admission) allocate(need int, affinity topology.Mask) (cpuset.CPUSet, error) {
	if err := a.wholeCores(need); err != nil {
		return cpuset.CPUSet{}, err
	}
	free, got := a.available().Union(a.reusable), cpuset.New()
	if affinity != 0 {
		near := free.Intersection(a.policy.machine.In(layout.Node, affinity.IDs()...))
		if a.policy.options.BySocket {
			near = free.Intersection(a.policy.machine.In(layout.Socket, a.socketsOf(affinity)...))
		}
		var err error
		if got, err = a.policy.choose(near, min(need, near.Size())); err != nil {
			return cpuset.CPUSet{}, err
		}
	}
	others, err := a.policy.choose(free.Difference(got), need-got.Size())
	return got.Union(others), err
}

// wholeCores refuses, with FullCores, what cannot be made of whole cores.
func (a *Admission) wholeCores(need int) error {
	if !a.policy.options.FullCores {
		return nil
	}
	const reason = "SMTAlignmentError"
	per := a.policy.machine.PerUnit(layout.Core)
	if need%per != 0 {
		return &topology.Refusal{Reason: reason, Message: fmt.Sprintf(
			"SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", need, per)}
	}
	if free := a.shared.Difference(a.policy.reservedCores).Size(); need > free {
		return &topology.Refusal{Reason: reason, Message: fmt.Sprintf(
			"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", free, need, per)}
	}
	return nil
}
