// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	referencecpu "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	referencememory "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	reference "k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"

	"github.com/sextant-node/sextant/services/resource/internal/cpumanager"
	"github.com/sextant-node/sextant/services/resource/internal/layout"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// TestScopes: whole admissions. With every policy and scope of the topology manager, with and
// without prefer-closest-numa-nodes, over the static policies of CPUs, with any options, and
// of memory, pods that come and go are admitted with the same CPUs and memory for each
// container, or are refused for the same reason and with the same words.
func TestScopes(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CPUManagerPolicyAlphaOptions, true)
	each(t, func(r *rand.Rand, dir string) (string, string) { return compareScopes(r, false, dir) })
}

// TestScopesOfPods is TestScopes with the gate PodLevelResourceManagers: most pods have
// resources of their own. What they have as a whole is the same too. Where a container that
// asks for no memory has a pod refused by the reference, the comparison ends.
func TestScopesOfPods(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CPUManagerPolicyAlphaOptions, true)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.PodLevelResourceManagers, true)
	each(t, func(r *rand.Rand, dir string) (string, string) { return compareScopes(r, true, dir) })
}

// theirs is the reference: its scope with its policies as providers of hints.
type theirs struct {
	scope      reference.Scope
	cpus       referencecpu.Policy
	memory     referencememory.Policy
	cpuState   cpustate.State
	memoryKept state.State
}

type cpuProvider struct{ *theirs }

func (p cpuProvider) GetTopologyHints(pod *v1.Pod, c *v1.Container) map[string][]reference.TopologyHint {
	return p.cpus.GetTopologyHints(klog.Logger{}, p.cpuState, pod, c)
}
func (p cpuProvider) GetPodTopologyHints(pod *v1.Pod) map[string][]reference.TopologyHint {
	return p.cpus.GetPodTopologyHints(klog.Logger{}, p.cpuState, pod)
}
func (p cpuProvider) Allocate(pod *v1.Pod, c *v1.Container) error {
	return p.cpus.Allocate(klog.Logger{}, p.cpuState, pod, c)
}
func (p cpuProvider) AllocatePod(pod *v1.Pod) error {
	return p.cpus.AllocatePod(klog.Logger{}, p.cpuState, pod)
}

type memoryProvider struct{ *theirs }

func (p memoryProvider) GetTopologyHints(pod *v1.Pod, c *v1.Container) map[string][]reference.TopologyHint {
	return p.memory.GetTopologyHints(klog.Logger{}, p.memoryKept, pod, c)
}
func (p memoryProvider) GetPodTopologyHints(pod *v1.Pod) map[string][]reference.TopologyHint {
	return p.memory.GetPodTopologyHints(klog.Logger{}, p.memoryKept, pod)
}
func (p memoryProvider) Allocate(pod *v1.Pod, c *v1.Container) error {
	return p.memory.Allocate(klog.Logger{}, p.memoryKept, pod, c)
}
func (p memoryProvider) AllocatePod(pod *v1.Pod) error {
	return p.memory.AllocatePod(klog.Logger{}, p.memoryKept, pod)
}

// world is a machine with both sides' policies; refused when the settings do not go together.
type world struct {
	about    string
	theirs   *theirs
	topology *topology.Policy
	cpus     *cpumanager.Policy
	memory   *memorymanager.Policy
	podLevel bool
}

// someWorld is nil where both refuse the settings, and says so where one does.
func someWorld(r *rand.Rand, podLevel bool) (w *world, got, want string) {
	machine := someMachine(r)
	for len(machine.CPUs) > mostCPUs {
		machine = someMachine(r)
	}
	someDistances(r, machine)
	name := []string{topology.None, topology.BestEffort, topology.Restricted, topology.SingleNUMANode}[r.IntN(4)]
	scope := []string{topology.ContainerScope, topology.PodScope}[r.IntN(2)]
	options := map[string]string{"prefer-closest-numa-nodes": strconv.FormatBool(r.IntN(2) == 0)}
	var nodes []topology.Node
	for _, m := range machine.Memory {
		nodes = append(nodes, topology.Node{ID: m.Node, Distances: m.Distances})
	}
	w = &world{podLevel: podLevel, theirs: &theirs{scope: theirScope(name, scope, options, machine)}}
	var err error
	if w.topology, err = topology.New(topology.Settings{Policy: name, Scope: scope, Options: options, PodLevel: topology.PodLevel(podLevel)}, nodes); err != nil {
		panic(err)
	}
	given := someOptions(r)
	cpuOptions, bad := cpumanager.ParseOptions(given, cpumanager.Gates{Alpha: true, Beta: true})
	count, reserved := someReservation(r, machine)
	w.theirs.cpus, err = referencecpu.NewStaticPolicy(klog.Logger{}, cpuTopology(machine), count, reserved, w.theirs.scope, given)
	cpuOptions.PodLevel = topology.PodLevel(podLevel)
	if bad == nil {
		w.cpus, bad = cpumanager.New(machine, cpuOptions, count, reserved, w.topology)
	}
	if bad != nil || err != nil {
		return nil, fmt.Sprint(bad != nil), fmt.Sprint(err != nil)
	}
	w.theirs.cpuState = cpustate.NewMemoryState(klog.Logger{})
	if err := w.theirs.cpus.Start(klog.Logger{}, w.theirs.cpuState); err != nil {
		panic(err)
	}
	w.theirs.scope.AddHintProvider(cpuProvider{w.theirs})
	memory := "memory None"
	if r.IntN(2) == 0 {
		reserved, whole, reservedTheirs := someMemoryReservation(r, machine)
		memory = fmt.Sprint("memory Static ", reserved)
		if w.memory, err = memorymanager.New(machine, reserved, whole, topology.PodLevel(podLevel)); err != nil {
			panic(err)
		}
		if w.theirs.memory, err = referencememory.NewPolicyStatic(klog.Logger{}, cadvisors(machine), reservedTheirs, w.theirs.scope); err != nil {
			panic(err)
		}
		w.theirs.memoryKept = state.NewMemoryState(klog.Logger{})
		if err := w.theirs.memory.Start(klog.Logger{}, w.theirs.memoryKept); err != nil {
			panic(err)
		}
		w.theirs.scope.AddHintProvider(memoryProvider{w.theirs})
	}
	w.about = fmt.Sprintf("%s%s %s %v, options %v reserved %s, %s\n", machine, name, scope, options, given, w.cpus.Reserved(), memory)
	return w, "", ""
}

func someDistances(r *rand.Rand, machine *layout.Layout) {
	for i := range machine.Memory {
		distances := make([]uint64, len(machine.Memory))
		for j := range distances {
			distances[j] = uint64(10 + 10*r.IntN(3))
		}
		machine.Memory[i].Distances = distances
	}
}

func theirScope(name, scope string, options map[string]string, machine *layout.Layout) reference.Scope {
	opts, err := reference.NewPolicyOptions(klog.Logger{}, options)
	if err != nil {
		panic(err)
	}
	info, err := reference.NewNUMAInfo(cadvisors(machine).Topology, opts)
	if err != nil {
		panic(err)
	}
	var policy reference.Policy
	switch name {
	case topology.None:
		return reference.NewNoneScope()
	case topology.BestEffort:
		policy = reference.NewBestEffortPolicy(info, opts)
	case topology.Restricted:
		policy = reference.NewRestrictedPolicy(info, opts)
	default:
		policy = reference.NewSingleNumaNodePolicy(info, opts)
	}
	if scope == topology.PodScope {
		return reference.NewPodScope(policy)
	}
	return reference.NewContainerScope(policy)
}

// holdings are what the pods have by now.
type holdings struct {
	cpus   cpumanager.Assignments
	memory []memorymanager.Assignment
}

func (h *holdings) drop(uid string) {
	delete(h.cpus, uid)
	h.memory = slices.DeleteFunc(h.memory, func(a memorymanager.Assignment) bool { return a.UID == uid })
}

func compareScopes(r *rand.Rand, podLevel bool, dir string) (string, string) {
	w, one, other := someWorld(r, podLevel)
	if w == nil {
		return one, other
	}
	all := &holdings{cpus: cpumanager.Assignments{}}
	pods := map[string]*v1.Pod{}
	var got, want strings.Builder
	for i := range 1 + r.IntN(6) {
		if len(pods) > 0 && r.IntN(3) == 0 { // one goes
			uid := slices.Sorted(maps.Keys(pods))[r.IntN(len(pods))]
			all.drop(uid)
			if err := w.remove(pods[uid], all, dir); err != nil {
				return w.broken(all, err)
			}
			delete(pods, uid)
		}
		p := somePod(r, "u"+strconv.Itoa(i), len(w.theirs.cpuState.GetDefaultCPUSet().List())+1)
		if podLevel {
			makeWhole(r, p)
		}
		cpus, memory := w.cpus.Admission(all.cpus), (*memorymanager.Admission)(nil)
		providers := []topology.Provider{cpus}
		if w.memory != nil {
			memory = w.memory.Admission(all.memory)
			providers = append(providers, memory)
		}
		outcome := w.topology.Admit(p, providers)
		result := w.theirs.scope.Admit(context.Background(), p)
		if strings.Contains(result.Message, "accounting error") {
			return "", ""
		}
		if strings.Contains(result.Message, "[memorymanager]") && sharesNode(p) {
			return "", ""
		}
		refusal := ""
		if outcome.Refusal != nil {
			refusal = outcome.Refusal.Reason + ": " + outcome.Refusal.Message
		}
		refused := ""
		if !result.Admit {
			refused = result.Reason + ": " + result.Message
		}
		fmt.Fprintf(&got, "%s: %s\n", p.UID, refusal)
		fmt.Fprintf(&want, "%s: %s\n", p.UID, refused)
		if refusal != refused {
			break
		}
		if refusal != "" {
			if err := w.remove(p, all, dir); err != nil {
				return w.broken(all, err)
			}
			continue
		}
		pods[string(p.UID)] = p
		all.cpus[string(p.UID)] = cpus.Given
		set, _ := w.theirs.cpuState.GetPodCPUSet(string(p.UID))
		fmt.Fprintf(&got, "as a whole %s\n", cpus.Given.Pod)
		fmt.Fprintf(&want, "as a whole %s\n", set)
		if memory != nil {
			fmt.Fprintf(&got, "as a whole %v\n", memory.Pod)
			fmt.Fprintf(&want, "as a whole %v\n", sorted(w.theirs.memoryKept.GetPodMemoryBlocks(string(p.UID))))
			if memory.Pod != nil {
				all.memory = append(all.memory, memorymanager.Assignment{UID: string(p.UID), Blocks: memory.Pod})
			}
		}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			set, _ := w.theirs.cpuState.GetCPUSet(string(p.UID), c.Name)
			fmt.Fprintf(&got, "%s has %s", c.Name, cpus.Given.Containers[c.Name])
			fmt.Fprintf(&want, "%s has %s", c.Name, set)
			if memory != nil {
				blocks := sorted(w.theirs.memoryKept.GetMemoryBlocks(string(p.UID), c.Name))
				fmt.Fprintf(&got, " %v", memory.Blocks[c.Name])
				fmt.Fprintf(&want, " %v", blocks)
				if own := memory.Blocks[c.Name]; own != nil {
					all.memory = append(all.memory, memorymanager.Assignment{UID: string(p.UID), Container: c.Name, Blocks: own, Part: memory.Pod != nil})
				}
			}
			got.WriteByte('\n')
			want.WriteByte('\n')
		}
		fmt.Fprintf(&got, "shared %s\n", w.cpus.Shared(all.cpus))
		fmt.Fprintf(&want, "shared %s\n", w.theirs.cpuState.GetDefaultCPUSet())
	}
	if file, err := w.cpus.File(all.cpus, podLevel); err != nil {
		panic(err)
	} else if w.cpus.Shared(all.cpus).IsEmpty() { // the reference refuses such a file, its own too
	} else if err := takeOverCPUs(w.theirs.cpus, file, dir); err != nil {
		fmt.Fprintf(&want, "the reference does not take over by %s: %v\n", file, err)
	}
	return w.about + got.String(), w.about + want.String()
}

func sorted(blocks []state.Block) []state.Block {
	slices.SortFunc(blocks, func(a, b state.Block) int { return cmp.Compare(a.Type, b.Type) })
	return blocks
}

// makeWhole gives most pods resources of their own: what the containers ask for, which some
// of them do without limits or not at all, and often more.
func makeWhole(r *rand.Rand, p *v1.Pod) {
	if r.IntN(5) == 0 {
		return
	}
	list := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	cpu, memory := list[v1.ResourceCPU], list[v1.ResourceMemory]
	cpu.Add(*resource.NewQuantity(r.Int64N(3), resource.DecimalSI))
	memory.Add(*resource.NewQuantity(r.Int64N(3)<<28, resource.BinarySI))
	list[v1.ResourceCPU], list[v1.ResourceMemory] = cpu, memory
	p.Spec.Resources = &v1.ResourceRequirements{Requests: list, Limits: list}
	if r.IntN(20) == 0 { // the pod is Burstable
		p.Spec.Resources.Limits = nil
	}
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			switch r.IntN(6) {
			case 0:
				containers[i].Resources = v1.ResourceRequirements{}
			case 1:
				containers[i].Resources.Limits = nil
			}
		}
	}
}

// sharesNode reports whether a container of a pod with resources of its own gets no memory
// of its own: the reference may refuse such a pod.
func sharesNode(p *v1.Pod) bool {
	return p.Spec.Resources != nil && slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c v1.Container) bool {
		return c.Resources.Limits == nil
	})
}

// broken is where the reference does not accept a file: not its own either, if it is mixed.
func (w *world) broken(left *holdings, err error) (string, string) {
	if mixed(left.memory) {
		return "", ""
	}
	return w.about, w.about + err.Error()
}

// remove takes from the reference what a pod has, or was given before it was refused.
func (w *world) remove(p *v1.Pod, left *holdings, dir string) (err error) {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if err := w.theirs.cpus.RemoveContainer(klog.Logger{}, w.theirs.cpuState, string(p.UID), c.Name); err != nil {
			panic(err)
		}
	}
	if w.memory != nil {
		w.theirs.memoryKept, err = takeOver(w.theirs.memory, w.memory, left.memory, w.podLevel, dir)
	}
	return err
}
