// SPDX-License-Identifier: Apache-2.0

package memorymanager

import (
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager/state"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// Counts are what metrics count of an admission: containers that were to have memory of
// their own, and those that could not.
type Counts struct {
	Requests, Errors int
	topology.Counts
}

// Admission chooses memory for the containers of one pod. It is a topology.Provider.
type Admission struct {
	policy  *Policy
	machine state.NUMANodeMap
	// reusable is memory of init containers that have ended when the next one starts.
	reusable map[topology.Mask]topology.Amounts
	// Blocks that containers have been given, by name; Pod what their pod has as a whole, of
	// which they are parts then.
	Blocks map[string][]state.Block
	Pod    []state.Block
	Counts Counts
}

// Admission begins one, beside what other pods have.
func (p *Policy) Admission(assigned []Assignment) *Admission {
	return &Admission{policy: p, machine: p.Machine(assigned), reusable: map[topology.Mask]topology.Amounts{}, Blocks: map[string][]state.Block{}}
}

// Hints implements topology.Provider.
func (a *Admission) Hints(p *v1.Pod, c *v1.Container) topology.Hints {
	need, err := a.policy.requested(p, c)
	if err != nil || !a.policy.eligible(p) {
		return nil
	}
	return a.hints(need)
}

// PodHints implements topology.Provider.
func (a *Admission) PodHints(p *v1.Pod) topology.Hints {
	need, err := a.policy.requestedBy(p)
	if err != nil || !a.policy.eligible(p) {
		return nil
	}
	if short, err := a.policy.shortage(p, need); err != nil || short != nil {
		impossible := topology.Hints{}
		for kind := range need {
			impossible[string(kind)] = []topology.Hint{}
		}
		return impossible
	}
	return a.hints(need)
}

// hints are the same for all kinds of memory; none at all where no nodes can serve, which
// a merge takes for no opinion: Allocate refuses then.
func (a *Admission) hints(need topology.Amounts) topology.Hints {
	masks := a.masks(need)
	if len(masks) == 0 {
		return nil
	}
	hints := topology.Hints{}
	for kind := range need {
		hints[string(kind)] = slices.Clone(masks)
	}
	return hints
}

// masks are the sets of nodes that have what is needed to give. Those with the fewest
// nodes that could have so much are preferred.
func (a *Admission) masks(need topology.Amounts) []topology.Hint {
	fewest := a.policy.nodes.Len()
	var masks []topology.Hint
	for mask := range a.policy.nodes.Subsets() {
		if !a.has(mask, need, func(t *state.MemoryTable) uint64 { return t.Allocatable }, nil) {
			continue
		}
		fewest = min(fewest, mask.Len())
		ids := mask.IDs()
		if len(ids) == 1 && len(a.machine[ids[0]].Cells) > 1 || violates(a.machine, mask) {
			continue
		}
		if a.has(mask, need, func(t *state.MemoryTable) uint64 { return t.Free }, a.reusable[mask]) {
			masks = append(masks, topology.Hint{Affinity: mask})
		}
	}
	for i := range masks {
		masks[i].Preferred = masks[i].Affinity.Len() == fewest
	}
	return masks
}

// has reports whether nodes have what is needed by a column of their tables, with extra.
func (a *Admission) has(mask topology.Mask, need topology.Amounts, column func(*state.MemoryTable) uint64, extra topology.Amounts) bool {
	for kind, n := range need {
		if sum(a.machine, mask, kind, column)+extra[kind] < n {
			return false
		}
	}
	return true
}

func sum(machine state.NUMANodeMap, mask topology.Mask, kind v1.ResourceName, column func(*state.MemoryTable) uint64) (n uint64) {
	for _, id := range mask.IDs() {
		if t := machine[id].MemoryMap[kind]; t != nil {
			n += column(t)
		}
	}
	return n
}

// free is what nodes have left of a kind.
func free(machine state.NUMANodeMap, mask topology.Mask, kind v1.ResourceName) uint64 {
	return sum(machine, mask, kind, func(t *state.MemoryTable) uint64 { return t.Free })
}

// violates reports whether a group of nodes has one that serves another group, or blocks of
// its own.
func violates(machine state.NUMANodeMap, mask topology.Mask) bool {
	ids := mask.IDs()
	return len(ids) > 1 && slices.ContainsFunc(ids, func(id int) bool {
		return machine[id].NumberOfAssignments > 0 && !slices.Equal(machine[id].Cells, ids)
	})
}

// Allocate implements topology.Provider. A container that asks for nothing, in a pod with
// resources of its own, shares the node's memory; a kubelet refuses such a pod where the
// affinity is none, or of nodes of which one serves another container.
func (a *Admission) Allocate(p *v1.Pod, c *v1.Container, affinity topology.Hint) error {
	need, err := a.policy.requested(p, c)
	if !a.policy.eligible(p) || err == nil && len(need) == 0 {
		return nil
	}
	a.Counts.Requests++
	if err == nil {
		err = a.allocate(p, c, need, affinity)
	}
	if err != nil {
		a.Counts.Errors++
		a.Counts.NodeErrors++
	}
	return err
}

func (a *Admission) allocate(p *v1.Pod, c *v1.Container, need topology.Amounts, affinity topology.Hint) error {
	mask, err := a.choose(need, affinity)
	if err != nil {
		return err
	}
	for _, kind := range need.Names() {
		again := min(need[kind], a.reusable[mask][kind])
		fill(a.machine, mask.IDs(), kind, need[kind]-again)
		a.Counts.Node++
	}
	a.reuse(p, c, mask, need)
	a.Blocks[c.Name] = blocksOf(need, mask)
	a.Counts.Exclusive++
	return nil
}

// blocksOf is a block for each kind of memory.
func blocksOf(need topology.Amounts, mask topology.Mask) (blocks []state.Block) {
	for _, kind := range need.Names() {
		blocks = append(blocks, state.Block{NUMAAffinity: mask.IDs(), Type: kind, Size: need[kind]})
	}
	return blocks
}

// choose returns the nodes of the affinity, more of them where those do not have enough, or
// the best ones where there is no affinity. What a preferred affinity becomes is preferred too.
func (a *Admission) choose(need topology.Amounts, affinity topology.Hint) (topology.Mask, error) {
	best := affinity
	if best.Affinity == 0 {
		masks := a.masks(need)
		if len(masks) == 0 {
			return 0, ErrNoNodes
		}
		if best = narrowest(masks); !best.Preferred && affinity.Preferred {
			return 0, errors.New("[memorymanager] failed to find the default preferred hint")
		}
	}
	if !a.has(best.Affinity, need, func(t *state.MemoryTable) uint64 { return t.Free }, nil) {
		wider := slices.DeleteFunc(a.masks(need), func(h topology.Hint) bool { return !h.Affinity.Covers(best.Affinity) })
		if len(wider) == 0 {
			return 0, errors.New("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
		}
		preferred := best.Preferred
		if best = narrowest(wider); !best.Preferred && preferred {
			return 0, errors.New("[memorymanager] failed to find the extended preferred hint")
		}
	}
	if violates(a.machine, best.Affinity) {
		return 0, errors.New("[memorymanager] preferred hint violates NUMA node allocation")
	}
	return best.Affinity, nil
}

// narrowest is the narrowest of the preferred hints, or of all where none is preferred.
func narrowest(hints []topology.Hint) topology.Hint {
	best := hints[0]
	for _, h := range hints[1:] {
		if h.Preferred && !best.Preferred || h.Preferred == best.Preferred && h.Affinity.Narrower(best.Affinity) {
			best = h
		}
	}
	return best
}

// reuse notes what a container leaves to the next ones, or has of those before it: their
// blocks shrink by it, so that all blocks together are what the nodes have given.
func (a *Admission) reuse(p *v1.Pod, c *v1.Container, mask topology.Mask, need topology.Amounts) {
	if a.reusable[mask] == nil {
		a.reusable[mask] = topology.Amounts{}
	}
	again := a.reusable[mask]
	early := slices.IndexFunc(p.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name })
	for kind, n := range need {
		if early >= 0 && !pod.IsSidecar(c) {
			again[kind] = max(again[kind], n)
		} else {
			again[kind] -= min(again[kind], n)
		}
	}
	before := p.Spec.InitContainers
	if early >= 0 {
		before = before[:early]
	}
	for kind, n := range need {
		for i := range before {
			if pod.IsSidecar(&before[i]) {
				continue
			}
			blocks := a.Blocks[before[i].Name]
			for j := range blocks {
				if blocks[j].Type == kind && slices.Equal(blocks[j].NUMAAffinity, mask.IDs()) {
					part := min(n, blocks[j].Size)
					blocks[j].Size -= part
					n -= part
				}
			}
		}
	}
}

// ErrNoNodes says that no NUMA nodes have so much memory, in the words of the kubelet.
var ErrNoNodes = errors.New("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")

// Fits reports whether blocks fit beside those of others: the nodes have so much left, and
// none of them serves another group.
func (p *Policy) Fits(assigned []Assignment, blocks []state.Block) bool {
	machine := p.Machine(assigned)
	for _, b := range blocks {
		mask, err := topology.MaskOf(b.NUMAAffinity...)
		if err != nil || mask == 0 || !p.nodes.Covers(mask) || violates(machine, mask) || free(machine, mask, b.Type) < b.Size {
			return false
		}
		for _, id := range b.NUMAAffinity {
			if len(b.NUMAAffinity) == 1 && len(machine[id].Cells) > 1 {
				return false
			}
		}
		fill(machine, b.NUMAAffinity, b.Type, b.Size)
	}
	return true
}
