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

// keepMemory records the memory that a running pod's containers had, unless others have it.
func (p *Policies) keepMemory(chosen *resourcev1.Chosen, r allocate.Request) {
	if p.memory == nil {
		return
	}
	for _, a := range p.foundFor(r.Pod, memoryOf(r.Held)) {
		recordMemory(chosen, a.Container, a.Blocks)
	}
}

// foundFor is what the containers of a pod had with the agent before, as far as it fits
// beside what others have.
func (p *Policies) foundFor(asked *v1.Pod, others []memorymanager.Assignment) (kept []memorymanager.Assignment) {
	had := p.found.Memory[string(asked.UID)]
	for _, list := range [][]v1.Container{asked.Spec.InitContainers, asked.Spec.Containers} {
		for i := range list {
			a := memorymanager.Assignment{UID: string(asked.UID), Container: list[i].Name, Blocks: had[list[i].Name]}
			if len(a.Blocks) > 0 && p.memory.Fits(slices.Concat(others, kept), a.Blocks) {
				kept = append(kept, a)
			}
		}
	}
	return kept
}

// recordMemory notes the memory that a container has of its own, and the nodes that it has
// it on in the form of a kubelet.
func recordMemory(chosen *resourcev1.Chosen, container string, blocks []state.Block) {
	if len(blocks) == 0 {
		return
	}
	c, nodes := allocate.Container(chosen, container), []int{}
	for _, b := range blocks {
		block := &resourcev1.MemoryBlock{Type: string(b.Type), Size: b.Size}
		for _, id := range b.NUMAAffinity {
			block.Nodes, nodes = append(block.Nodes, int64(id)), append(nodes, id)
		}
		c.Memory = append(c.Memory, block)
	}
	slices.Sort(nodes)
	ids := make([]string, 0, len(nodes))
	for _, id := range slices.Compact(nodes) {
		ids = append(ids, strconv.Itoa(id))
	}
	c.CpusetMems = strings.Join(ids, ",")
}

// memoryOf is the memory that containers have of their own.
func memoryOf(held []allocate.Held) (all []memorymanager.Assignment) {
	for _, h := range held {
		for _, c := range h.Chosen.GetContainers() {
			a := memorymanager.Assignment{UID: string(h.Pod.UID), Container: c.GetName()}
			for _, m := range c.GetMemory() {
				b := state.Block{Type: v1.ResourceName(m.GetType()), Size: m.GetSize()}
				for _, id := range m.GetNodes() {
					b.NUMAAffinity = append(b.NUMAAffinity, int(id))
				}
				a.Blocks = append(a.Blocks, b)
			}
			if len(a.Blocks) > 0 {
				all = append(all, a)
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
