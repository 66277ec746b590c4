// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"
)

// StateFile is the name of the file below the root directory in which a kubelet keeps
// what containers have.
const StateFile = "cpu_manager_state"

// state is such a file. Source: the kubelet's checkpoint format, version 2.
type state struct {
	Policy   string                       `json:"policyName"`
	Default  string                       `json:"defaultCpuSet"`
	Entries  map[string]map[string]string `json:"entries,omitempty"`
	Checksum uint32                       `json:"checksum"`
}

// ReadState reads a kubelet's file: the CPUs that containers have of their own, none with
// the policy none. An error says what is wrong with it; a sum of 0 is not checked, as with
// the kubelet.
func ReadState(data []byte) (Assignments, error) {
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	if sum := s.sum(); s.Checksum != 0 && s.Checksum != sum {
		return nil, fmt.Errorf("checkpoint is corrupted: checksum %d, want %d", s.Checksum, sum)
	}
	all := Assignments{}
	for uid, containers := range s.Entries {
		all[uid] = map[string]cpuset.CPUSet{}
		for name, list := range containers {
			cpus, err := cpuset.Parse(list)
			if err != nil {
				return nil, fmt.Errorf("entries[%s][%s]: %w", uid, name, err)
			}
			all[uid][name] = cpus
		}
	}
	return all, nil
}

// File is the kubelet's file for a policy, nil for none, and what containers have.
func (p *Policy) File(assigned Assignments) ([]byte, error) {
	s := state{Policy: None}
	if p != nil {
		s = state{Policy: Static, Default: p.Shared(assigned).String(), Entries: map[string]map[string]string{}}
		for uid, containers := range assigned {
			s.Entries[uid] = map[string]string{}
			for name, cpus := range containers {
				s.Entries[uid][name] = cpus.String()
			}
		}
	}
	s.Checksum = s.sum()
	return json.Marshal(s)
}

// sum is what the kubelet computes: FNV-1a of the text that its language has for the
// structure, with the names of its types.
func (s *state) sum() uint32 {
	var pods []string
	for _, uid := range slices.Sorted(maps.Keys(s.Entries)) {
		var containers []string
		for _, name := range slices.Sorted(maps.Keys(s.Entries[uid])) {
			containers = append(containers, name+":"+s.Entries[uid][name])
		}
		pods = append(pods, uid+":map["+strings.Join(containers, " ")+"]")
	}
	hash := fnv.New32a()
	fmt.Fprintf(hash, "(*state.CPUManagerCheckpoint){PolicyName:(string)%s DefaultCPUSet:(string)%s "+
		"Entries:(map[string]map[string]string)map[%s] Checksum:(checksum.Checksum)0}", s.Policy, s.Default, strings.Join(pods, " "))
	return hash.Sum32()
}
