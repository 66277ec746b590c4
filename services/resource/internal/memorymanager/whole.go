// SPDX-License-Identifier: Apache-2.0

package memorymanager

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager/state"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// AllocatePod implements topology.Provider: all containers have their memory on the same
// NUMA nodes, for themselves or shared with others of the pod.
func (a *Admission) AllocatePod(p *v1.Pod, affinity topology.Hint) error {
	if !a.policy.eligible(p) {
		return nil
	}
	a.Counts.Requests++
	need, err := a.policy.requestedBy(p)
	if err == nil {
		err = a.allocatePod(p, need, affinity)
	}
	if err != nil {
		a.Counts.Errors++
		a.Counts.PodErrors++
	}
	return err
}

func (a *Admission) allocatePod(p *v1.Pod, need topology.Amounts, affinity topology.Hint) error {
	short, err := a.policy.shortage(p, need)
	switch {
	case err != nil:
		return topology.EmptyPool(err.Error())
	case short != nil && short.Starting:
		return topology.EmptyPool(fmt.Sprintf("pod has shared init containers but no %s available for them", short.Resource))
	case short != nil:
		return topology.EmptyPool(fmt.Sprintf("sum of exclusive container %s requests equals pod budget, leaving no memory for shared containers", short.Resource))
	}
	mask, err := a.choose(need, affinity)
	if err != nil {
		return err
	}
	parts, err := topology.Split(p, need, func(c *v1.Container, _ topology.Amounts) (topology.Amounts, bool, error) {
		own, err := a.policy.requested(p, c)
		return own, len(own) > 0, err
	})
	if err != nil {
		return err
	}
	for kind, n := range need {
		fill(a.machine, mask.IDs(), kind, n)
	}
	a.Pod = blocksOf(need, mask)
	for kind, c := range pod.Containers(p) {
		part, ok := parts[c.Name]
		if !ok {
			continue
		}
		a.Blocks[c.Name] = slices.DeleteFunc(blocksOf(part.Of, mask), func(b state.Block) bool { return b.Size == 0 })
		a.Counts.Counts.Pod++
		if part.Exclusive || kind == pod.Init {
			a.Counts.Requests++ // as a kubelet counts them
		}
		if part.Exclusive {
			a.Counts.PodExclusive++
		} else {
			a.Counts.PodShared++
		}
	}
	return nil
}

// shortage is that of memory, in a pod that has so much as a whole; nil for other pods.
func (p *Policy) shortage(asked *v1.Pod, whole topology.Amounts) (short *topology.Shortage, err error) {
	if !p.podLevel.AsWhole(asked) {
		return nil, nil
	}
	short = topology.ShortageOf(asked, whole, func(c *v1.Container) topology.Amounts {
		own, bad := p.requested(asked, c)
		if bad != nil {
			err = bad
		}
		return own
	})
	return short, err
}
