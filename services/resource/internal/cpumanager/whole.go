// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// AllocatePod implements topology.Provider: every container has a part of the pod's CPUs,
// for itself or shared with others of the pod. A pod that asks for no whole number of CPUs
// has none of its own.
func (a *Admission) AllocatePod(p *v1.Pod, affinity topology.Hint) error {
	need := a.policy.exclusiveOf(p)
	if need == 0 {
		return nil
	}
	err := a.allocatePod(p, need, affinity.Affinity)
	if err != nil {
		a.Counts.Errors++
		a.Counts.PodErrors++
	}
	return err
}

func (a *Admission) allocatePod(p *v1.Pod, need int, affinity topology.Mask) error {
	if short := a.policy.shortage(p, need); short != nil {
		if short.Starting {
			return topology.EmptyPool("pod has shared init containers but no cpus available for them")
		}
		return topology.EmptyPool("sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers")
	}
	cpus, err := a.allocate(need, affinity)
	if err != nil {
		return err
	}
	a.take(cpus)
	parts, err := topology.Split(p, cpus, func(c *v1.Container, left cpuset.CPUSet) (cpuset.CPUSet, bool, error) {
		n := a.policy.Exclusive(p, c)
		if n == 0 {
			return cpuset.New(), false, nil
		}
		a.Counts.Requests++
		part, err := a.policy.choose(left, n)
		return part, true, err
	})
	if err != nil {
		return err
	}
	a.Given.Pod = cpus
	for name, part := range parts {
		a.Given.Containers[name] = part.Of
		a.Counts.Counts.Pod++
		if part.Exclusive {
			a.Counts.PodExclusive++
		} else {
			a.Counts.PodShared++
		}
	}
	return nil
}

// shortage is that of CPUs, in a pod that has so many as a whole.
func (p *Policy) shortage(asked *v1.Pod, whole int) *topology.Shortage {
	return topology.ShortageOf(asked, topology.Amounts{v1.ResourceCPU: uint64(whole)}, func(c *v1.Container) topology.Amounts {
		if n := p.Exclusive(asked, c); n > 0 {
			return topology.Amounts{v1.ResourceCPU: uint64(n)}
		}
		return nil
	})
}
