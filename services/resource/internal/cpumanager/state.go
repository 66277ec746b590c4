// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"fmt"

	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/services/resource/internal/cpumanager/state"
)

// ReadState reads a kubelet's file: the CPUs that pods have of their own, none with the
// policy none. An error says what is wrong with it.
func ReadState(data []byte) (Assignments, error) {
	c, err := state.Decode(data)
	if err != nil {
		return nil, err
	}
	all := Assignments{}
	for uid, containers := range c.Entries {
		of := Assignment{Pod: c.PodEntries[uid].CPUSet, Containers: map[string]cpuset.CPUSet{}}
		for name, list := range containers {
			if of.Containers[name], err = cpuset.Parse(list); err != nil {
				return nil, fmt.Errorf("entries[%s][%s]: %w", uid, name, err)
			}
		}
		all[uid] = of
	}
	return all, nil
}

// File is the kubelet's file for a policy, nil for none, and what pods have, in the form of
// the kubelet's gate PodLevelResourceManagers.
func (p *Policy) File(assigned Assignments, podLevel bool) ([]byte, error) {
	c := state.CPUManagerCheckpoint{PolicyName: None, Entries: map[string]map[string]string{}, PodEntries: state.PodCPUAssignments{}}
	if p == nil {
		return c.Encode(podLevel)
	}
	c.PolicyName, c.DefaultCPUSet = Static, p.Shared(assigned).String()
	for uid, of := range assigned {
		c.Entries[uid] = map[string]string{}
		for name, cpus := range of.Containers {
			c.Entries[uid][name] = cpus.String()
		}
		if !of.Pod.IsEmpty() {
			c.PodEntries[uid] = state.PodEntry{CPUSet: of.Pod}
		}
	}
	return c.Encode(podLevel)
}
