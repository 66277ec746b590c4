// SPDX-License-Identifier: Apache-2.0

// Package state is the kubelet's file memory_manager_state: what the memory of the NUMA
// nodes is, and which container has which part of it. Either agent reads what the other
// wrote.
//
// The checksum of the file is FNV-1a of a text that holds the names of Go types; those of
// this package, and its own name, are the kubelet's and must stay as they are.
package state

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/resource/internal/checksum"
)

// Name of the file, below the root directory.
const Name = "memory_manager_state"

// MemoryTable is one kind of memory of a NUMA node, in bytes. What containers have of
// Allocatable is Reserved, the rest is Free.
type MemoryTable struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"`
	Free           uint64 `json:"free"`
}

// NUMANodeState is a NUMA node: how many blocks are on it, its memory by kind, and the ids
// of the nodes that it shares blocks with, its own among them.
type NUMANodeState struct {
	NumberOfAssignments int                              `json:"numberOfAssignments"`
	MemoryMap           map[v1.ResourceName]*MemoryTable `json:"memoryMap"`
	Cells               []int                            `json:"cells"`
}

// NUMANodeMap are the nodes by their ids.
type NUMANodeMap map[int]*NUMANodeState

// Block is memory of one kind that a container has: Size bytes somewhere on these nodes.
type Block struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

// ContainerMemoryAssignments are blocks by pod uid and container name.
type ContainerMemoryAssignments map[string]map[string][]Block

// PodMemoryAssignments are blocks that pods have as a whole, by uid.
type PodMemoryAssignments map[string]PodEntry

// PodEntry is what one pod has.
type PodEntry struct {
	MemoryBlocks []Block `json:"memoryBlocks,omitempty"`
}

// MemoryManagerCheckpoint is the file, in the form of version 2: with the gate
// PodLevelResourceManagers.
type MemoryManagerCheckpoint struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	PodEntries   PodMemoryAssignments       `json:"podEntries,omitempty"`
	Checksum     checksum.Checksum          `json:"checksum"`
}

// memoryManagerCheckpointV1 is the file without the gate.
type memoryManagerCheckpointV1 struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	Checksum     checksum.Checksum          `json:"checksum"`
}

func (c *MemoryManagerCheckpoint) v1() *memoryManagerCheckpointV1 {
	return &memoryManagerCheckpointV1{PolicyName: c.PolicyName, MachineState: c.MachineState, Entries: c.Entries}
}

func (c MemoryManagerCheckpoint) sum() checksum.Checksum {
	c.Checksum = 0
	return checksum.New(&c)
}

func (c *memoryManagerCheckpointV1) sum() checksum.Checksum {
	return checksum.As(c, "memoryManagerCheckpointV1", "MemoryManagerCheckpoint")
}

// Encode writes a file: version 2 with the gate, or when there are pod entries.
func (c MemoryManagerCheckpoint) Encode(podLevel bool) ([]byte, error) {
	if podLevel || len(c.PodEntries) > 0 {
		c.Checksum = c.sum()
		return json.Marshal(c)
	}
	old := c.v1()
	old.Checksum = old.sum()
	return json.Marshal(old)
}

// Decode reads a file of either version. An error says what is wrong with it; a sum of 0 is
// not checked, as with the kubelet.
func Decode(data []byte) (MemoryManagerCheckpoint, error) {
	c := MemoryManagerCheckpoint{MachineState: NUMANodeMap{}, Entries: ContainerMemoryAssignments{}, PodEntries: PodMemoryAssignments{}}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, err
	}
	return c, checksum.Verify(c.Checksum, c.sum(), c.v1().sum())
}
