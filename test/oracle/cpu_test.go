// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	reference "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/services/resource/internal/cpumanager"
	ourcpustate "github.com/sextant-node/sextant/services/resource/internal/cpumanager/state"
	"github.com/sextant-node/sextant/services/resource/internal/layout"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// TestCPUs: on any regular machine, with any options that go together and any reservation,
// pods that come and go are refused for the same reason and with the same words, or get the
// same CPUs for each container, by any affinity; the hints before are the same, and the
// shared pool after. At the end the reference starts by the file that is written. The reference's accounting error is no answer: what it then refuses is
// packed here.
func TestCPUs(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CPUManagerPolicyAlphaOptions, true)
	each(t, compareCPUs)
}

// takeOverCPUs has the reference start by a file.
func takeOverCPUs(policy reference.Policy, file []byte, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, ourcpustate.Name), file, 0o600); err != nil {
		return err
	}
	kept, err := state.NewCheckpointState(klog.Logger{}, dir, ourcpustate.Name, cpumanager.Static, nil)
	if err != nil {
		return err
	}
	return policy.Start(klog.Logger{}, kept)
}

// store gives the reference the affinity of the pod that is being admitted.
type store struct {
	affinity topology.Mask
	policy   topologymanager.Policy
}

func (s *store) GetAffinity(string, string) topologymanager.TopologyHint {
	return topologymanager.TopologyHint{NUMANodeAffinity: bits(s.affinity)}
}
func (s *store) GetPolicy() topologymanager.Policy { return s.policy }
func (s *store) Name() string                      { return "container" }

// mostCPUs is how many machines may have for combinations of NUMA nodes, which the reference
// goes through with sets of text, to be compared quickly.
const mostCPUs = 48

func compareCPUs(r *rand.Rand, dir string) (string, string) {
	machine := someMachine(r)
	for len(machine.CPUs) > mostCPUs {
		machine = someMachine(r)
	}
	given := someOptions(r)
	options, ours := cpumanager.ParseOptions(given, cpumanager.Gates{Alpha: true, Beta: true})
	count, reserved := someReservation(r, machine)
	affinities := &store{policy: topologymanager.NewNonePolicy()}
	policy, err := reference.NewStaticPolicy(klog.Logger{}, cpuTopology(machine), count, reserved, affinities, given)
	if ours != nil {
		return fmt.Sprint(ours != nil), fmt.Sprint(err != nil)
	}
	mine, refused := cpumanager.New(machine, options, count, reserved, &topology.Policy{})
	if err != nil || refused != nil {
		return fmt.Sprint(refused != nil), fmt.Sprint(err != nil)
	}
	kept := state.NewMemoryState(klog.Logger{})
	if err := policy.Start(klog.Logger{}, kept); err != nil {
		panic(err)
	}
	assigned := cpumanager.Assignments{}
	var got, want strings.Builder
	for i := range 1 + r.IntN(6) {
		if len(assigned) > 0 && r.IntN(3) == 0 { // one goes
			uid := slices.Sorted(maps.Keys(assigned))[r.IntN(len(assigned))]
			for name := range assigned[uid].Containers {
				if err := policy.RemoveContainer(klog.Logger{}, kept, uid, name); err != nil {
					panic(err)
				}
			}
			delete(assigned, uid)
		}
		p := somePod(r, "u"+strconv.Itoa(i), len(machine.CPUs))
		admission := mine.Admission(assigned)
		fmt.Fprintf(&got, "%s\n", hintText(admission.PodHints(p)))
		fmt.Fprintf(&want, "%s\n", hintText(ourHints(policy.GetPodTopologyHints(klog.Logger{}, kept, p))))
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			affinities.affinity = 0
			if r.IntN(2) == 0 {
				affinities.affinity = topology.Mask(1 + r.IntN(1<<len(machine.Units(layout.Node))-1))
			}
			fmt.Fprintf(&got, "%s\n", hintText(admission.Hints(p, &c)))
			fmt.Fprintf(&want, "%s\n", hintText(ourHints(policy.GetTopologyHints(klog.Logger{}, kept, p, &c))))
			theirs := policy.Allocate(klog.Logger{}, kept, p, &c)
			if theirs != nil && strings.HasPrefix(theirs.Error(), "accounting error") {
				return "", ""
			}
			err := admission.Allocate(p, &c, topology.Hint{Affinity: affinities.affinity})
			set, _ := kept.GetCPUSet(string(p.UID), c.Name)
			fmt.Fprintf(&got, "%s of %s, %d by %s: %s %s\n", c.Name, p.UID, mine.Exclusive(p, &c), affinities.affinity, admission.Given.Containers[c.Name], reason(err))
			fmt.Fprintf(&want, "%s of %s, %d by %s: %s %s\n", c.Name, p.UID, mine.Exclusive(p, &c), affinities.affinity, set, reason(theirs))
			if err != nil || theirs != nil {
				break
			}
		}
		assigned[string(p.UID)] = admission.Given
		fmt.Fprintf(&got, "shared %s\n", mine.Shared(assigned))
		fmt.Fprintf(&want, "shared %s\n", kept.GetDefaultCPUSet())
	}
	if file, err := mine.File(assigned, false); err != nil {
		panic(err)
	} else if mine.Shared(assigned).IsEmpty() { // the reference refuses such a file, its own too
	} else if err := takeOverCPUs(policy, file, dir); err != nil {
		fmt.Fprintf(&want, "the reference does not take over by %s: %v\n", file, err)
	}
	about := fmt.Sprintf("%soptions %v reserved %s\n", machine, given, mine.Reserved())
	return about + got.String(), about + want.String()
}

// reason is an error as a pod's status has it.
func reason(err error) string {
	if err == nil {
		return ""
	}
	var typed interface{ Type() string }
	if errors.As(err, &typed) {
		return typed.Type() + ": " + err.Error()
	}
	r := topology.Refused(err)
	return r.Reason + ": " + r.Message
}

func someOptions(r *rand.Rand) map[string]string {
	given := map[string]string{}
	for _, name := range []string{
		"full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket", "distribute-cpus-across-cores", "strict-cpu-reservation",
		"prefer-align-cpus-by-uncorecache",
	} {
		if r.IntN(3) == 0 {
			given[name] = strconv.FormatBool(r.IntN(8) > 0)
		}
	}
	return given
}

// someReservation is a number of CPUs, in half of the cases with these CPUs named. It is in
// whole cores: with a part of a core the reference's distribution may never end.
func someReservation(r *rand.Rand, machine *layout.Layout) (int, cpuset.CPUSet) {
	cores := machine.Units(layout.Core)
	n := 1 + r.IntN(max(1, len(cores)/2))
	if r.IntN(2) == 0 {
		return n * machine.PerUnit(layout.Core), cpuset.New()
	}
	r.Shuffle(len(cores), func(i, j int) { cores[i], cores[j] = cores[j], cores[i] })
	set := machine.In(layout.Core, cores[:n]...)
	return set.Size(), set
}

// somePod has up to two init containers or sidecars and up to three containers. Most ask for
// whole CPUs, and most pods are Guaranteed.
func somePod(r *rand.Rand, uid string, cpus int) *v1.Pod {
	p := &v1.Pod{}
	p.UID, p.Name = types.UID(uid), uid
	always := v1.ContainerRestartPolicyAlways
	for i := range r.IntN(3) {
		c := someContainer(r, "init"+strconv.Itoa(i), cpus)
		if r.IntN(2) == 0 {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for i := range 1 + r.IntN(3) {
		p.Spec.Containers = append(p.Spec.Containers, someContainer(r, "app"+strconv.Itoa(i), cpus))
	}
	return p
}

func someContainer(r *rand.Rand, name string, cpus int) v1.Container {
	milli := int64(1+r.IntN(max(1, cpus/2))) * 1000
	switch r.IntN(12) {
	case 0:
		milli += 500
	case 1:
		milli = 1000 * int64(cpus)
	}
	list := v1.ResourceList{
		v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI), v1.ResourceMemory: *resource.NewQuantity(1+r.Int64N(6)<<28, resource.BinarySI),
	}
	c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list, Limits: list}}
	if r.IntN(30) == 0 { // the pod is Burstable
		c.Resources.Limits = nil
	}
	if r.IntN(4) == 0 {
		list["hugepages-2Mi"] = *resource.NewQuantity(1+r.Int64N(128)<<21, resource.BinarySI)
	}
	return c
}

func ourHints(theirs map[string][]topologymanager.TopologyHint) topology.Hints {
	if theirs == nil {
		return nil
	}
	ours := topology.Hints{}
	for name, list := range theirs {
		if list != nil {
			ours[name] = []topology.Hint{}
		}
		for _, h := range list {
			ours[name] = append(ours[name], topology.Hint{Affinity: mask(h.NUMANodeAffinity), Preferred: h.Preferred})
		}
	}
	return ours
}

func hintText(hints topology.Hints) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(hints)) {
		fmt.Fprintf(&b, "%s %v:", name, hints[name] == nil)
		for _, h := range hints[name] {
			fmt.Fprintf(&b, " %v", h.Affinity)
			if h.Preferred {
				b.WriteByte('+')
			}
		}
	}
	return b.String()
}
