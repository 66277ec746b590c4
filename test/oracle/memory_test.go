// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	reference "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"

	"github.com/sextant-node/sextant/services/resource/internal/cpumanager"
	ourcpustate "github.com/sextant-node/sextant/services/resource/internal/cpumanager/state"
	"github.com/sextant-node/sextant/services/resource/internal/layout"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager"
	ourstate "github.com/sextant-node/sextant/services/resource/internal/memorymanager/state"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// TestMemory: on any machine, with any reservation, pods that come get the same hints and
// the same blocks for each container, by any affinity, or are refused with the same words.
// When one has gone the reference takes the node over by the file that is written then: it
// accepts its sum and its contents, and goes on from it.
func TestMemory(t *testing.T) {
	each(t, compareMemory)
}

func compareMemory(r *rand.Rand, dir string) (string, string) {
	machine := someMachine(r)
	reserved, whole, theirs := someMemoryReservation(r, machine)
	affinities := &memoryStore{policy: topologymanager.NewNonePolicy()}
	policy, err := reference.NewPolicyStatic(klog.Logger{}, cadvisors(machine), theirs, affinities)
	if err != nil {
		panic(err)
	}
	mine, err := memorymanager.New(machine, reserved, whole, false)
	if err != nil {
		panic(err)
	}
	kept := state.NewMemoryState(klog.Logger{})
	if err := policy.Start(klog.Logger{}, kept); err != nil {
		panic(err)
	}
	var assigned []memorymanager.Assignment
	var got, want strings.Builder
	for i := range 1 + r.IntN(8) {
		if len(assigned) > 0 && r.IntN(3) == 0 { // one goes
			gone := assigned[r.IntN(len(assigned))].UID
			assigned = slices.DeleteFunc(assigned, func(a memorymanager.Assignment) bool { return a.UID == gone })
			if kept, err = takeOver(policy, mine, assigned, false, dir); err != nil {
				fmt.Fprintf(&got, "mixed %v\n", mixed(assigned))
				fmt.Fprintf(&want, "mixed true, for %v\n", err)
				if mixed(assigned) { // the reference does not accept its own file either
					return "", ""
				}
				break
			}
		}
		p := somePod(r, "u"+strconv.Itoa(i), len(machine.CPUs))
		admission := mine.Admission(assigned)
		fmt.Fprintf(&got, "%s\n", hintText(admission.PodHints(p)))
		fmt.Fprintf(&want, "%s\n", hintText(ourHints(policy.GetPodTopologyHints(klog.Logger{}, kept, p))))
		all := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
		for _, c := range all {
			hint := topology.Hint{Preferred: r.IntN(2) == 0}
			if r.IntN(2) == 0 {
				hint.Affinity = topology.Mask(1 + r.IntN(1<<len(machine.Memory)-1))
			}
			affinities.hint = hint
			fmt.Fprintf(&got, "%s\n", hintText(admission.Hints(p, &c)))
			fmt.Fprintf(&want, "%s\n", hintText(ourHints(policy.GetTopologyHints(klog.Logger{}, kept, p, &c))))
			err, theirs := admission.Allocate(p, &c, hint), policy.Allocate(klog.Logger{}, kept, p, &c)
			fmt.Fprintf(&got, "%s of %s by %v: %s\n", c.Name, p.UID, hint, reason(err))
			fmt.Fprintf(&want, "%s of %s by %v: %s\n", c.Name, p.UID, hint, reason(theirs))
			if err != nil || theirs != nil {
				break
			}
		}
		for _, c := range all {
			blocks := kept.GetMemoryBlocks(string(p.UID), c.Name)
			slices.SortFunc(blocks, func(a, b state.Block) int { return cmp.Compare(a.Type, b.Type) })
			fmt.Fprintf(&got, "%s has %v\n", c.Name, admission.Blocks[c.Name])
			fmt.Fprintf(&want, "%s has %v\n", c.Name, blocks)
			if own := admission.Blocks[c.Name]; own != nil {
				assigned = append(assigned, memorymanager.Assignment{UID: string(p.UID), Container: c.Name, Blocks: own})
			}
		}
	}
	about := fmt.Sprintf("%sreserved %v\n", machine, reserved)
	return about + got.String(), about + want.String()
}

// memoryStore gives the reference the affinity of the container that is being admitted.
type memoryStore struct {
	hint   topology.Hint
	policy topologymanager.Policy
}

func (s *memoryStore) GetAffinity(string, string) topologymanager.TopologyHint {
	return topologymanager.TopologyHint{NUMANodeAffinity: bits(s.hint.Affinity), Preferred: s.hint.Preferred}
}
func (s *memoryStore) GetPolicy() topologymanager.Policy { return s.policy }
func (s *memoryStore) Name() string                      { return "container" }

// takeOver has the reference read the file that is written for what is assigned; it is also
// read here, and must say the same.
func takeOver(policy reference.Policy, mine *memorymanager.Policy, assigned []memorymanager.Assignment, podLevel bool, dir string) (state.State, error) {
	file, err := mine.File(assigned, podLevel)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, ourstate.Name)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		return nil, err
	}
	kept, err := state.NewCheckpointState(klog.Logger{}, dir, ourstate.Name, memorymanager.Static)
	if err != nil {
		return nil, err
	}
	if err := policy.Start(klog.Logger{}, kept); err != nil {
		return nil, err
	}
	kept.SetMemoryAssignments(kept.GetMemoryAssignments()) // it writes its own
	if file, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	read, err := ourstate.Decode(file)
	if err != nil {
		return nil, err
	}
	again, err := read.Encode(podLevel)
	if err == nil && string(again) != string(file) {
		err = fmt.Errorf("it writes %s, not %s", file, again)
	}
	return kept, err
}

// mixed reports whether a node of a group has blocks of its own, which an affinity can bring
// about.
func mixed(assigned []memorymanager.Assignment) bool {
	groups := map[int]string{}
	for _, a := range assigned {
		if a.Part {
			continue
		}
		for _, b := range a.Blocks {
			for _, id := range b.NUMAAffinity {
				group := fmt.Sprint(b.NUMAAffinity)
				if was, ok := groups[id]; ok && was != group {
					return true
				}
				groups[id] = group
			}
		}
	}
	return false
}

// someMemoryReservation reserves some of the memory of nodes, in all and as the reference
// takes it.
func someMemoryReservation(r *rand.Rand, machine *layout.Layout) ([]kubeletv1beta1.MemoryReservation, v1.ResourceList, map[int]map[v1.ResourceName]uint64) {
	var reserved []kubeletv1beta1.MemoryReservation
	whole, theirs := v1.ResourceList{}, map[int]map[v1.ResourceName]uint64{}
	for i, m := range machine.Memory {
		theirs[m.Node] = map[v1.ResourceName]uint64{}
		limits := v1.ResourceList{}
		add := func(name v1.ResourceName, n int64) {
			limits[name] = *resource.NewQuantity(n, resource.BinarySI)
			sum := whole[name]
			sum.Add(limits[name])
			whole[name], theirs[m.Node][name] = sum, uint64(n)
		}
		if i == 0 || r.IntN(2) == 0 {
			add(v1.ResourceMemory, 1+r.Int64N(3)<<28)
		}
		if m.HugePages[2048] > 0 && r.IntN(4) == 0 {
			add("hugepages-2Mi", 32<<21)
		}
		reserved = append(reserved, kubeletv1beta1.MemoryReservation{NumaNode: int32(m.Node), Limits: limits})
	}
	return reserved, whole, theirs
}

// TestFilesOfNone: the reference starts by the files of the policies that give nothing.
func TestFilesOfNone(t *testing.T) {
	dir := t.TempDir()
	memory, err := (*memorymanager.Policy)(nil).File(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	cpus, err := (*cpumanager.Policy)(nil).File(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{ourstate.Name: memory, ourcpustate.Name: cpus} {
		if err := os.WriteFile(filepath.Join(dir, name), file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := state.NewCheckpointState(klog.Logger{}, dir, ourstate.Name, memorymanager.None); err != nil {
		t.Errorf("%s: %v", memory, err)
	}
	if _, err := cpustate.NewCheckpointState(klog.Logger{}, dir, ourcpustate.Name, cpumanager.None, nil); err != nil {
		t.Errorf("%s: %v", cpus, err)
	}
}
