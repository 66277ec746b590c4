// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/test/measure"
	"github.com/sextant-node/sextant/test/standin"
)

// static is a configuration of the static CPU manager on the rig's machine of four CPUs,
// of which CPU 0 is reserved.
func static(r *rig) func(*kubeletconfig.Config) {
	for cpu, id := range []string{"0", "1", "2", "3"} {
		dir := "sys/devices/system/cpu/cpu" + string(rune('0'+cpu)) + "/topology/"
		r.file(dir+"core_id", id)
		r.file(dir+"physical_package_id", "0")
	}
	return func(c *kubeletconfig.Config) {
		c.Kubelet.CPUManagerPolicy = "static"
		c.Kubelet.ReservedSystemCPUs = "0"
		c.Kubelet.FeatureGates = map[string]bool{}
	}
}

// guaranteed is a pod whose only container asks for whole CPUs.
func guaranteed(uid, cpus string) *v1.Pod {
	p := burstable(uid, cpus)
	list := v1.ResourceList{v1.ResourceCPU: apiresource.MustParse(cpus), v1.ResourceMemory: apiresource.MustParse("16Mi")}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	return p
}

// pinned is a rig with the static policy that admits pods.
func pinned(t *testing.T) *rig {
	r := newRig(t, nil)
	r.stop()
	edit := static(r)
	r.start(nil)
	r.configure(edit)
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	return r
}

// has waits until a pod's item shows these CPUs: its own and the shared ones.
func (r *rig) has(uid, own, shared string) {
	r.Helper()
	r.Eventually(uid+" has "+own+" of its own, and shares "+shared, func() bool {
		item, ok := r.pods.Get(uid)
		return ok && ownOf(item) == own && item.GetSharedCpus() == shared
	})
}

func ownOf(item *resourcev1.PodAllocation) string {
	var own []string
	for _, c := range item.GetContainers() {
		own = append(own, c.GetCpusetCpus())
	}
	return strings.Join(own, " ")
}

// TestPinnedCPUs: what a pod has of its own is shared by no other, also not after a restart,
// until it is released; a pod too many is refused.
func TestPinnedCPUs(t *testing.T) {
	r := pinned(t)
	shares := burstable("shares", "0")
	shares.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	r.admit(shares, false)
	r.has("shares", "", "0-3")
	r.admit(guaranteed("one", "1"), false)
	r.has("one", "1", "0,2-3")
	r.has("shares", "", "0,2-3")
	before, _, _, _ := r.pods.State()
	r.stop()
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	r.has("shares", "", "0,2-3")
	r.Eventually("the other CPUs are given", func() bool {
		return r.admit(guaranteed("two", "2"), false).GetDecision() == resourcev1.Decision_DECISION_ADMITTED
	})
	r.has("two", "2-3", "0")
	r.has("one", "1", "0")
	refused := decision(r.admit(guaranteed("three", "1"), false))
	if !strings.HasPrefix(refused, "rejected ") {
		t.Errorf("a pod too many: %s", refused)
	}
	for metric, want := range map[string]float64{
		"kubelet_cpu_manager_shared_pool_size_millicores":        0,
		"kubelet_cpu_manager_exclusive_cpu_allocation_count":     3,
		`kubelet_cpu_manager_allocation_per_numa{numa_node="0"}`: 3,
		"kubelet_cpu_manager_pinning_requests_total":             2,
		"kubelet_cpu_manager_pinning_errors_total":               1,
		"kubelet_topology_manager_admission_requests_total":      2,
		"kubelet_topology_manager_admission_errors_total":        0,
	} {
		if got := measure.Value(t, r.kit.Metrics, metric); got != want {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
	r.release("one")
	r.has("two", "2-3", "0-1")
	r.has("shares", "", "0-1")
}

// TestARunningPodKeepsAKubeletsCPUs: the file that a kubelet left says what a pod that runs
// has; a pod that is not in it gets none while it runs.
func TestARunningPodKeepsAKubeletsCPUs(t *testing.T) {
	r := newRig(t, nil)
	r.stop()
	edit := static(r)
	r.file("cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0-1,3","entries":{"was":{"c":"2"}},"checksum":0}`)
	r.start(nil)
	r.configure(edit)
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	r.admit(guaranteed("was", "1"), true)
	r.admit(guaranteed("shared", "1"), true)
	r.has("was", "2", "0-1,3")
	r.has("shared", "", "0-1,3")
}

// afterAKubelet is a rig with the static policy, where a kubelet ran before.
func afterAKubelet(t *testing.T, entries string) *rig {
	r := newRig(t, nil)
	r.stop()
	edit := static(r)
	r.file("cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0","entries":`+entries+`,"checksum":0}`)
	r.start(nil)
	r.configure(edit)
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	return r
}

// TestANewPodBeforeARunningOne: no pod that comes gets, or shares, the CPUs that a kubelet's
// file has of a pod that is not told of yet. One that would fit without those waits until
// that pod is told of, or is known to be gone.
func TestANewPodBeforeARunningOne(t *testing.T) {
	r := afterAKubelet(t, `{"was":{"c":"1"},"ended":{"c":"3"}}`)
	r.admit(guaranteed("new", "1"), false)
	r.has("new", "2", "0")
	const waits = "not yet: waiting for what becomes of pods that had CPUs or memory of their own with the kubelet: ended, was"
	if got := decision(r.admit(guaranteed("next", "1"), false)); got != waits {
		t.Errorf("%s, want %s", got, waits)
	}
	if got := decision(r.admit(guaranteed("much", "4"), false)); !strings.HasPrefix(got, "rejected ") {
		t.Errorf("more than there is: %s", got)
	}
	r.admit(guaranteed("was", "1"), true)
	r.has("was", "1", "0")
	standin.Set(r.House, r.desired, "was", &configv1.DesiredPod{})
	r.desired.SetComplete(r.Context(), true)
	r.Eventually("what the pod had that is gone is another's", func() bool {
		return strings.HasPrefix(decision(r.admit(guaranteed("next", "1"), false)), "admitted")
	})
	r.has("next", "3", "0")
	r.has("was", "1", "0")
}

// TestStateOfAPodThatHasEnded: what a kubelet's file has of a pod that the sources still have
// is another's once it is known that the pod has no cgroup.
func TestStateOfAPodThatHasEnded(t *testing.T) {
	r := afterAKubelet(t, `{"runs":{"c":"1"},"succeeded":{"c":"2-3"}}`)
	if err := (cgroup.Tree{Driver: "cgroupfs"}).Ensure(r.kubepods("podruns"), cgroup.Values{}); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"runs", "succeeded"} {
		standin.Set(r.House, r.desired, uid, &configv1.DesiredPod{})
	}
	r.desired.SetComplete(r.Context(), true)
	r.Eventually("a pod has what the other had", func() bool {
		return strings.HasPrefix(decision(r.admit(guaranteed("new", "2"), false)), "admitted")
	})
	r.has("new", "2-3", "0")
}

// TestBackFromAKubelet: a pod that a kubelet started has the CPU of one that ended meanwhile,
// which the checkpoint still has.
func TestBackFromAKubelet(t *testing.T) {
	r := pinned(t)
	r.admit(guaranteed("old", "1"), false)
	r.has("old", "1", "0,2-3")
	if err := (cgroup.Tree{Driver: "cgroupfs"}).Ensure(r.kubepods("podold", "container"), cgroup.Values{}); err != nil {
		t.Fatal(err)
	}
	before, _, _, _ := r.pods.State()
	r.stop()
	r.file("cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0,2-3","entries":{"runs":{"c":"1"}},"checksum":0}`)
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	r.states("cpu_manager_state", strings.HasPrefix, `{"policyName":"static","defaultCpuSet":"0,2-3","entries":{"runs":{"c":"1"}},`)
	r.Eventually("answers", func() bool {
		return strings.HasPrefix(decision(r.admit(guaranteed("runs", "1"), true)), "admitted")
	})
	r.has("runs", "1", "0,2-3")
	r.has("old", "", "0,2-3")
	r.Eventually("an event of the pod that has lost its CPU", func() bool {
		for _, e := range r.events.Items() {
			if e.GetReason() == "LostExclusiveResources" && e.GetObject().GetUid() == "old" {
				return e.GetMessage() == "other pods have what it had of its own before the kubelet: CPUs 1"
			}
		}
		return false
	})
	r.release("old")
	r.Eventually("released", func() bool { _, ok := r.pods.Get("old"); return !ok })
	r.has("runs", "1", "0,2-3")
}

// TestARunningPodThatHasLostItsCPUs: a pod that is told of as running after it was known to
// be gone does not have what was given to others since, and an event says so.
func TestARunningPodThatHasLostItsCPUs(t *testing.T) {
	r := afterAKubelet(t, `{"back":{"c":"1"}}`)
	r.desired.SetComplete(r.Context(), true)
	r.Eventually("another has all", func() bool {
		return strings.HasPrefix(decision(r.admit(guaranteed("all", "3"), false)), "admitted")
	})
	r.admit(guaranteed("back", "1"), true)
	r.has("all", "1-3", "0")
	r.has("back", "", "0")
	r.Eventually("an event", func() bool {
		for _, e := range r.events.Items() {
			if e.GetReason() == "LostExclusiveResources" && e.GetObject().GetUid() == "back" {
				return e.GetMessage() == "other pods have what it had of its own with the kubelet: CPUs 1"
			}
		}
		return false
	})
}

// TestABootWithFewerCPUs: a pod is refused after a boot whose CPUs the machine does not have
// any more, unless something of it runs.
func TestABootWithFewerCPUs(t *testing.T) {
	r := pinned(t)
	r.admit(guaranteed("one", "1"), false)
	r.admit(guaranteed("two", "2"), false)
	r.has("two", "2-3", "0")
	before, _, _, _ := r.pods.State()
	r.stop()
	r.file("proc/sys/kernel/random/boot_id", "b2")
	r.file("sys/devices/system/cpu/online", "0-1")
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	r.Eventually("two is refused", func() bool {
		item, _ := r.pods.Get("two")
		return item.GetEviction().GetReason() == "UnexpectedAdmissionError" && item.GetEviction().GetMessage() ==
			"Allocate failed due to not enough cpus available to satisfy request: requested=2, available=0, which is unexpected"
	})
	r.Eventually("one may start", func() bool {
		item, _ := r.pods.Get("one")
		return item.GetEviction() == nil && item.GetUnready() == "" && ownOf(item) == "1"
	})
}

// ofPods is a configuration of the static CPU manager in the topology manager's scope pod,
// with the gate PodLevelResourceManagers.
func ofPods(r *rig) func(*kubeletconfig.Config) {
	edit := static(r)
	r.file("sys/devices/system/node/node0/cpulist", "0-3")
	r.file("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 8388608 kB")
	return func(c *kubeletconfig.Config) {
		edit(c)
		c.Kubelet.TopologyManagerPolicy, c.Kubelet.TopologyManagerScope = "best-effort", "pod"
		c.Kubelet.FeatureGates = map[string]bool{"PodLevelResourceManagers": true}
	}
}

// whole is a pod with so many CPUs of its own, of which its first container has one alone
// and its second shares what is left.
func whole(uid, cpus string) *v1.Pod {
	p := guaranteed(uid, "1")
	list := v1.ResourceList{v1.ResourceCPU: apiresource.MustParse(cpus), v1.ResourceMemory: apiresource.MustParse("32Mi")}
	p.Spec.Resources = &v1.ResourceRequirements{Requests: list, Limits: list}
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "helper"})
	return p
}

// TestCPUsOfAPod: a pod with resources of its own has CPUs as a whole, and each container a
// part of them, also after a restart; the file for a kubelet has both. A pod that leaves its
// containers nothing to share is refused.
func TestCPUsOfAPod(t *testing.T) {
	r := newRig(t, nil)
	r.stop()
	edit := ofPods(r)
	r.start(nil)
	r.configure(edit)
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	r.admit(whole("u", "2"), false)
	r.has("u", "1 2", "0,3")
	const file = `{"policyName":"static","defaultCpuSet":"0,3","entries":{"u":{"c":"1","helper":"2"}},"podEntries":{"u":{"cpuSet":"1-2"}},"checksum":`
	r.Eventually("the kubelet's file", func() bool {
		data, err := os.ReadFile(filepath.Join(r.machine, "cpu_manager_state"))
		return err == nil && strings.HasPrefix(string(data), file)
	})
	if item, _ := r.pods.Get("u"); !item.GetContainers()[0].GetExclusiveCpus() || item.GetContainers()[1].GetExclusiveCpus() {
		t.Errorf("quotas: %v", item.GetContainers())
	}
	r.stop()
	r.start(nil)
	r.Eventually("it is refused, as its containers have nothing to share", func() bool {
		got := r.admit(whole("v", "1"), false)
		return got.GetReason() == "EmptyPodSharedPoolError" &&
			got.GetMessage() == "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
	})
	r.has("u", "1 2", "0,3")
	for metric, want := range map[string]float64{
		`resource_manager_allocation_errors_total{resource_name="cpu",source="pod"}`: 1,
		"kubelet_cpu_manager_exclusive_cpu_allocation_count":                         2,
	} {
		if got := measure.Value(t, r.kit.Metrics, metric); got != want {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
	r.release("u")
	r.Eventually("its CPUs can be had again", func() bool {
		return r.admit(whole("x", "3"), false).GetDecision() == resourcev1.Decision_DECISION_ADMITTED
	})
	r.has("x", "1 2-3", "0")
}

// TestARunningPodKeepsAKubeletsCPUsOfAPod: the file that a kubelet left with the gate says
// what a running pod has as a whole, and its containers of that.
func TestARunningPodKeepsAKubeletsCPUsOfAPod(t *testing.T) {
	r := newRig(t, nil)
	r.stop()
	edit := ofPods(r)
	r.file("cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0,3","entries":{"was":{"c":"2","helper":"1"}},"podEntries":{"was":{"cpuSet":"1-2"}},"checksum":0}`)
	r.start(nil)
	r.configure(edit)
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	r.admit(whole("was", "2"), true)
	r.has("was", "2 1", "0,3")
	r.release("was")
	r.Eventually("all of it can be had again", func() bool {
		return r.admit(whole("x", "3"), false).GetDecision() == resourcev1.Decision_DECISION_ADMITTED
	})
}

// TestNoCPUsWithoutALayout: a machine whose CPUs cannot be read admits nothing that would
// have to be pinned, and says which field wants it.
func TestNoCPUsWithoutALayout(t *testing.T) {
	r := newRig(t, nil)
	r.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.CPUManagerPolicy = "static"
		c.Kubelet.ReservedSystemCPUs = "0"
	})
	r.answers()
	r.Eventually("says why", func() bool {
		return strings.Contains(decision(r.admit(guaranteed("a", "1"), false)), "cpuManagerPolicy, memoryManagerPolicy, topologyManagerPolicy: the machine's CPUs are not known: cpu 0: core_id: ")
	})
}

// TestPinnedCPUsAtEachWrite kills the service at each write of its checkpoint while a pod
// with CPUs of its own comes and goes: the pod beside it keeps its own, no CPU is given
// twice, and what the other had is shared again when it is gone.
func TestPinnedCPUsAtEachWrite(t *testing.T) {
	s := newSiege(t, 20)
	s.process.Kill()
	s.configure(static(s.rig))
	s.live("")
	alone := func(uid string) []byte {
		data, err := guaranteed(uid, "1").Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	s.insist(&resourcev1.AdmitRequest{Pod: alone("stays")})
	s.has("stays", "1", "0,2-3")
	kills := s.eachWrite([]any{&resourcev1.AdmitRequest{Pod: alone("u")}, &resourcev1.ReleaseRequest{Uid: "u"}}, func() {
		s.insist(&resourcev1.AdmitRequest{Pod: alone("u")})
		s.has("u", "2", "0,3")
		s.has("stays", "1", "0,3")
		s.insist(&resourcev1.ReleaseRequest{Uid: "u"})
		s.has("stays", "1", "0,2-3")
	})
	// The admission, the release and its end, one after the other; the shared CPUs may be
	// written with one of them, by the loop.
	if kills < 6 {
		t.Errorf("only %d kills: the checkpoint has more writes", kills)
	}
}
