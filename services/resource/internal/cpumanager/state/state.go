// SPDX-License-Identifier: Apache-2.0

// Package state is the kubelet's file cpu_manager_state: which container has which CPUs, and
// which are shared. Either agent reads what the other wrote.
//
// The checksum of the file is of a text that holds the names of Go types; those of this
// package, and its own name, are the kubelet's and must stay as they are.
package state

import (
	"encoding/json"
	"fmt"

	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/services/resource/internal/checksum"
)

// Name of the file, below the root directory.
const Name = "cpu_manager_state"

// PodCPUAssignments are the CPUs that pods have as a whole, by uid.
type PodCPUAssignments map[string]PodEntry

// PodEntry is what one pod has.
type PodEntry struct {
	CPUSet cpuset.CPUSet
}

type podEntry struct {
	CPUSet string `json:"cpuSet,omitempty"`
}

// MarshalJSON writes a list of CPUs.
func (p PodEntry) MarshalJSON() ([]byte, error) { return json.Marshal(podEntry{p.CPUSet.String()}) }

// UnmarshalJSON reads one.
func (p *PodEntry) UnmarshalJSON(data []byte) error {
	var list podEntry
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	cpus, err := cpuset.Parse(list.CPUSet)
	if err != nil {
		return fmt.Errorf("podEntries: cpuSet: %w", err)
	}
	p.CPUSet = cpus
	return nil
}

// CPUManagerCheckpoint is the file, in the form of version 3: with the gate
// PodLevelResourceManagers.
type CPUManagerCheckpoint struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	PodEntries    PodCPUAssignments            `json:"podEntries,omitempty"`
	Checksum      checksum.Checksum            `json:"checksum"`
}

// cpuManagerCheckpointV2 is the file without the gate.
type cpuManagerCheckpointV2 struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      checksum.Checksum            `json:"checksum"`
}

func (c *CPUManagerCheckpoint) v2() *cpuManagerCheckpointV2 {
	return &cpuManagerCheckpointV2{PolicyName: c.PolicyName, DefaultCPUSet: c.DefaultCPUSet, Entries: c.Entries}
}

func (c CPUManagerCheckpoint) sum() checksum.Checksum {
	c.Checksum = 0
	return checksum.New(&c)
}

func (c *cpuManagerCheckpointV2) sum() checksum.Checksum {
	return checksum.As(c, "cpuManagerCheckpointV2", "CPUManagerCheckpoint")
}

// Encode writes a file: version 3 with the gate, or when there are pod entries.
func (c CPUManagerCheckpoint) Encode(podLevel bool) ([]byte, error) {
	if podLevel || len(c.PodEntries) > 0 {
		c.Checksum = c.sum()
		return json.Marshal(c)
	}
	old := c.v2()
	old.Checksum = old.sum()
	return json.Marshal(old)
}

// Decode reads a file of either version. An error says what is wrong with it; a sum of 0 is
// not checked, as with the kubelet.
func Decode(data []byte) (CPUManagerCheckpoint, error) {
	c := CPUManagerCheckpoint{Entries: map[string]map[string]string{}, PodEntries: PodCPUAssignments{}}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, err
	}
	return c, checksum.Verify(c.Checksum, c.sum(), c.v2().sum())
}
