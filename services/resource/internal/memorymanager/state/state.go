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
	"fmt"
	"hash/fnv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
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

// Checksum of a file.
type Checksum uint64

// MemoryManagerCheckpoint is the file, in the form of version 1: without pod-level blocks.
type MemoryManagerCheckpoint struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	Checksum     Checksum                   `json:"checksum"`
}

func (c MemoryManagerCheckpoint) sum() Checksum {
	c.Checksum = 0
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(strings.Replace(dump.ForHash(&c), "(state.Checksum)", "(checksum.Checksum)", 1))) // it does not fail
	return Checksum(hash.Sum32())
}

// Encode writes a file.
func Encode(policy string, machine NUMANodeMap, entries ContainerMemoryAssignments) ([]byte, error) {
	if machine == nil {
		machine = NUMANodeMap{}
	}
	if entries == nil {
		entries = ContainerMemoryAssignments{}
	}
	c := MemoryManagerCheckpoint{PolicyName: policy, MachineState: machine, Entries: entries}
	c.Checksum = c.sum()
	return json.Marshal(c)
}

// Decode reads a file. An error says what is wrong with it; a sum of 0 is not checked, as
// with the kubelet.
func Decode(data []byte) (MemoryManagerCheckpoint, error) {
	c := MemoryManagerCheckpoint{MachineState: NUMANodeMap{}, Entries: ContainerMemoryAssignments{}}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, err
	}
	if sum := c.sum(); c.Checksum != 0 && c.Checksum != sum {
		return c, fmt.Errorf("checkpoint is corrupted: checksum %d, want %d", c.Checksum, sum)
	}
	return c, nil
}
