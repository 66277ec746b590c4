// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/test/deviceplugin"
	"github.com/sextant-node/sextant/test/measure"
)

// edited is a pod with a change.
func edited(p *v1.Pod, edit func(*v1.PodSpec)) *v1.Pod {
	edit(&p.Spec)
	return p
}

func system(spec *v1.PodSpec) {
	priority := pod.SystemCriticalPriority
	spec.Priority = &priority
}

func elsewhere(spec *v1.PodSpec) { spec.NodeName = "another" }

// TestResourceManagersAreAskedBeforeTheNode: as with a kubelet, pressure and sysctls come
// first, then what the resource managers say, then all else that keeps a pod away; each pod
// that they were asked for is counted, once, and what they would give to a pod that is
// refused is free. The node has 4 CPUs, one of them reserved, and 8 GiB.
func TestResourceManagersAreAskedBeforeTheNode(t *testing.T) {
	const (
		noCPUs   = "rejected UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: requested=5, available=3, which is unexpected"
		noMemory = "rejected UnexpectedAdmissionError: Allocate failed due to [memorymanager] failed to get the default NUMA affinity, " +
			"no NUMA nodes with enough memory is available, which is unexpected"
	)
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want string
		// counts are admissions by the topology manager, requests and errors of CPUs, of memory.
		counts [5]float64
	}{
		"too many CPUs":                    {guaranteed("u", "5"), noCPUs, [5]float64{1, 1, 1, 0, 0}},
		"too many CPUs, critical":          {edited(guaranteed("u", "5"), system), noCPUs, [5]float64{1, 1, 1, 0, 0}},
		"too many CPUs, for another node":  {edited(guaranteed("u", "5"), elsewhere), noCPUs, [5]float64{1, 1, 1, 0, 0}},
		"too much memory":                  {wide("u", "9Gi"), noMemory, [5]float64{1, 1, 0, 1, 1}},
		"too many CPUs, and none to pin":   {burstable("u", "5"), "rejected OutOfcpu", [5]float64{1, 0, 0, 0, 0}},
		"CPUs to pin, but of another node": {edited(guaranteed("u", "1"), elsewhere), "rejected NodeName", [5]float64{1, 1, 0, 1, 0}},
		"CPUs to pin, but other labels": {
			edited(guaranteed("u", "1"), func(spec *v1.PodSpec) { spec.NodeSelector = map[string]string{"disk": "none"} }), "rejected NodeAffinity", [5]float64{1, 1, 0, 1, 0},
		},
		"a sysctl": {
			edited(guaranteed("u", "5"), func(spec *v1.PodSpec) {
				spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
			}), "rejected SysctlForbidden", [5]float64{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := withMemory(t, nil, nil)
			r.known()
			r.server.node.Store(&v1.Node{})
			if got := decision(r.admit(c.pod, false)); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s, want %s", got, c.want)
			}
			measure.Expect(t, r.kit.Metrics, map[string]float64{
				"kubelet_topology_manager_admission_requests_total":  c.counts[0],
				"kubelet_cpu_manager_pinning_requests_total":         c.counts[1],
				"kubelet_cpu_manager_pinning_errors_total":           c.counts[2],
				"kubelet_memory_manager_pinning_requests_total":      c.counts[3],
				"kubelet_memory_manager_pinning_errors_total":        c.counts[4],
				"kubelet_cpu_manager_exclusive_cpu_allocation_count": 0,
			})
			if got := decision(r.admit(guaranteed("all", "3"), false)); !strings.HasPrefix(got, "admitted") {
				t.Errorf("all that there is: %s", got)
			}
		})
	}
}

// TestPreemptionForPinnedCPUs: a critical pod waits for victims whose CPUs it gets then, and is
// counted once. (A kubelet refuses it: its CPU manager comes first, and looks at no victims.)
func TestPreemptionForPinnedCPUs(t *testing.T) {
	r := pinned(t)
	r.admit(guaranteed("victim", "2"), false)
	asks := func() string { return decision(r.admit(edited(guaranteed("system", "2"), system), false)) }
	for range 2 {
		if got := asks(); got != "not yet: waiting for pods to end: ns/name-victim" {
			t.Fatal(got)
		}
	}
	r.Eventually("a verdict", func() bool { return len(r.preempted()) > 0 })
	r.release("victim")
	r.Eventually("it has their CPUs", func() bool { return strings.HasPrefix(asks(), "admitted") })
	r.has("system", "1-2", "0,3")
	measure.Expect(t, r.kit.Metrics, map[string]float64{
		"kubelet_cpu_manager_pinning_requests_total":        2,
		"kubelet_cpu_manager_pinning_errors_total":          0,
		"kubelet_topology_manager_admission_requests_total": 2,
	})
}

// TestNoPreemptionForAPodThatTheManagersRefuse: it would be refused when the victims are gone.
func TestNoPreemptionForAPodThatTheManagersRefuse(t *testing.T) {
	r := newRig(t, nil)
	r.stop()
	edit := static(r)
	for cpu, core := range map[string]string{"1": "0", "2": "1", "3": "1"} {
		r.file("sys/devices/system/cpu/cpu"+cpu+"/topology/core_id", core)
	}
	r.start(nil)
	r.configure(func(c *kubeletconfig.Config) {
		edit(c)
		c.Kubelet.CPUManagerPolicyOptions = map[string]string{"full-pcpus-only": "true"}
	})
	r.answers()
	r.known()
	r.admit(burstable("stays", "3"), false)
	const want = "rejected SMTAlignmentError: SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"
	if got := decision(r.admit(edited(guaranteed("system", "1"), system), false)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	measure.Expect(t, r.kit.Metrics, map[string]float64{
		`kubelet_preemptions{preemption_signal="cpu"}`: math.NaN(),
		"kubelet_cpu_manager_pinning_errors_total":     1,
	})
}

// TestNoPreemptionForAPodThatWaitsForADevice: while its plugin is away a critical pod takes
// room from nobody, and none is kept for it; when the plugin is back it does.
func TestNoPreemptionForAPodThatWaitsForADevice(t *testing.T) {
	r, dir := plugins(t)
	p := deviceplugin.Start(t, dir, gpu, deviceplugin.Devices("a"))
	r.counts("1", "1")
	p.Stop()
	r.counts("1", "0")
	r.decided(burstable("there", "2"), "admitted")
	system := asking(critical("system", "3"), gpu, 1)
	for range 2 {
		r.decided(system, "not yet: waiting for the device plugin of "+gpu)
	}
	r.decided(burstable("later", "500m"), "admitted")
	if all := r.preempted(); len(all) > 0 {
		t.Errorf("preempted: %v", all)
	}
	if err := p.Come(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.counts("1", "1")
	r.decided(system, "not yet: waiting for pods to end: ns/name-there")
	r.Eventually("a verdict", func() bool { return slices.Equal(r.preempted(), []string{"there"}) })
	r.release("there")
	if got := r.admitted(system); got != "a" {
		t.Errorf("devices %q", got)
	}
}
