// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager/state"
)

// keepMemory records the memory that a running pod had, unless others have it, and reports
// whether that is all. What the checkpoint alone has of others counts only for a pod that is
// not awaited any more.
func (p *Policies) keepMemory(chosen *resourcev1.Chosen, r allocate.Request, awaited bool) (all bool) {
	if p.memory == nil {
		return true
	}
	uid, others := string(r.Pod.UID), memoryOf(r.Held)
	if awaited {
		others = p.filed(others)
	}
	kept := p.foundFor(uid, others)
	for _, a := range kept {
		if a.Container == "" {
			recordPodMemory(chosen, a.Blocks)
			continue
		}
		recordMemory(chosen, a.Container, a.Blocks)
	}
	had := slices.DeleteFunc(slices.Clone(p.found.Memory[uid]), func(a memorymanager.Assignment) bool { return len(a.Blocks) == 0 })
	return len(kept) == len(had)
}

// foundFor is what a pod had with the agent before, as far as it fits beside what others
// have. Parts of what the pod had as a whole fit if that does.
func (p *Policies) foundFor(uid string, others []memorymanager.Assignment) (kept []memorymanager.Assignment) {
	for _, a := range p.found.Memory[uid] {
		fits := a.Part && len(kept) > 0 || !a.Part && p.memory.Fits(slices.Concat(others, kept), a.Blocks)
		if len(a.Blocks) > 0 && fits {
			kept = append(kept, a)
		}
	}
	return kept
}

// recordPodMemory notes the memory that a pod has as a whole.
func recordPodMemory(chosen *resourcev1.Chosen, blocks []state.Block) {
	chosen.Memory = messages(blocks)
}

func messages(blocks []state.Block) (all []*resourcev1.MemoryBlock) {
	for _, b := range blocks {
		block := &resourcev1.MemoryBlock{Type: string(b.Type), Size: b.Size}
		for _, id := range b.NUMAAffinity {
			block.Nodes = append(block.Nodes, int64(id))
		}
		all = append(all, block)
	}
	return all
}

func blocksOf(messages []*resourcev1.MemoryBlock) (all []state.Block) {
	for _, m := range messages {
		b := state.Block{Type: v1.ResourceName(m.GetType()), Size: m.GetSize()}
		for _, id := range m.GetNodes() {
			b.NUMAAffinity = append(b.NUMAAffinity, int(id))
		}
		all = append(all, b)
	}
	return all
}

// recordMemory notes the memory that a container has of its own, and the nodes that it has
// it on in the form of a kubelet.
func recordMemory(chosen *resourcev1.Chosen, container string, blocks []state.Block) {
	if len(blocks) == 0 {
		return
	}
	c, nodes := allocate.Container(chosen, container), []int{}
	c.Memory = messages(blocks)
	for _, b := range blocks {
		nodes = append(nodes, b.NUMAAffinity...)
	}
	slices.Sort(nodes)
	ids := make([]string, 0, len(nodes))
	for _, id := range slices.Compact(nodes) {
		ids = append(ids, strconv.Itoa(id))
	}
	c.CpusetMems = strings.Join(ids, ",")
}

// memoryOf is the memory that pods and containers have of their own.
func memoryOf(held []allocate.Held) (all []memorymanager.Assignment) {
	for _, h := range held {
		uid, whole := string(h.Pod.UID), blocksOf(h.Chosen.GetMemory())
		if len(whole) > 0 {
			all = append(all, memorymanager.Assignment{UID: uid, Blocks: whole})
		}
		for _, c := range h.Chosen.GetContainers() {
			if blocks := blocksOf(c.GetMemory()); len(blocks) > 0 {
				all = append(all, memorymanager.Assignment{UID: uid, Container: c.GetName(), Blocks: blocks, Part: len(whole) > 0})
			}
		}
	}
	return all
}

// AllocatableMemory are the blocks of memory that containers can have of their own.
func (p *Policies) AllocatableMemory() []state.Block {
	if p.memory == nil {
		return nil
	}
	return p.memory.Allocatable()
}
