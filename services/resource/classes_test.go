// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
)

// TestClassValues: what kubepods and the classes get by what their pods request, with and
// without protection of memory (KEP-2570), on either version of cgroups.
func TestClassValues(t *testing.T) {
	s := sums{burstableMilli: 2000, memory: map[v1.PodQOSClass]int64{v1.PodQOSGuaranteed: 300, v1.PodQOSBurstable: 40}}
	for name, tc := range map[string]struct {
		version             uint32
		gate                bool
		policy              string
		kubepods, burstable map[string]string
		guaranteedPod       map[string]string
		burstablePod        map[string]string
	}{
		"version 1":        {version: 1, gate: true, policy: "TieredReservation"},
		"without the gate": {version: 2, policy: "TieredReservation"},
		"no tiers": {2, true, "None", map[string]string{"memory.min": "0"}, map[string]string{"memory.low": "0"},
			map[string]string{"memory.min": "0", "memory.low": "0"}, map[string]string{"memory.min": "0", "memory.low": "0"}},
		"tiers": {2, true, "TieredReservation", map[string]string{"memory.min": "340"}, map[string]string{"memory.low": "40"},
			map[string]string{"memory.min": "7", "memory.low": "0"}, map[string]string{"memory.min": "0", "memory.low": "7"}},
	} {
		now := &settings{conf: &kubeletconfig.Config{}, cgroupVersion: tc.version}
		now.conf.Kubelet.FeatureGates = map[string]bool{"MemoryQoS": tc.gate, "QOSReserved": false}
		now.conf.Kubelet.MemoryReservationPolicy = kubeletv1beta1.MemoryReservationPolicy(tc.policy)
		now.conf.Kubelet.QOSReserved = map[string]string{"memory": "50%"}
		kubepods, burstable, bestEffort := now.classValues(s, 1000)
		if !maps.Equal(kubepods.Unified, tc.kubepods) || !maps.Equal(burstable.Unified, tc.burstable) || bestEffort.Unified != nil {
			t.Errorf("%s: %v, %v, %v", name, kubepods.Unified, burstable.Unified, bestEffort.Unified)
		}
		if *burstable.CPUShares != 2048 || burstable.Memory != nil || bestEffort.Memory != nil {
			t.Errorf("%s: burstable %+v, besteffort %+v", name, burstable, bestEffort)
		}
		if got := now.protection(v1.PodQOSGuaranteed, 7); !maps.Equal(got, tc.guaranteedPod) {
			t.Errorf("%s: a Guaranteed pod has %v", name, got)
		}
		if got := now.protection(v1.PodQOSBurstable, 7); !maps.Equal(got, tc.burstablePod) {
			t.Errorf("%s: a Burstable pod has %v", name, got)
		}
		now.conf.Kubelet.FeatureGates["QOSReserved"] = true
		if _, burstable, bestEffort = now.classValues(s, 1000); *burstable.Memory != 850 || *bestEffort.Memory != 830 {
			t.Errorf("%s: burstable keeps %d, besteffort %d", name, *burstable.Memory, *bestEffort.Memory)
		}
	}
}

// TestProtectedMemoryIsTold: the metrics add up the requests of a class where the gate and
// cgroup v2 are there; pods that are being released do not count.
func TestProtectedMemoryIsTold(t *testing.T) {
	requests := func(memory string, limited bool) *held {
		list := v1.ResourceList{v1.ResourceMemory: apiresource.MustParse(memory), v1.ResourceCPU: apiresource.MustParse("1")}
		p := &v1.Pod{}
		p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list}}}
		if limited {
			p.Spec.Containers[0].Resources.Limits = list
		}
		return &held{pod: p}
	}
	leaving := requests("900", true)
	leaving.Releasing = true
	pods := &ledger{held: map[string]*held{"a": requests("300", true), "b": requests("40", false), "c": leaving}}
	for name, tc := range map[string]struct {
		version uint32
		gate    bool
		policy  string
		want    string
	}{
		"version 1":        {1, true, "TieredReservation", ""},
		"without the gate": {2, false, "TieredReservation", ""},
		"no tiers":         {2, true, "None", "0 0"},
		"tiers":            {2, true, "TieredReservation", "300 40"},
	} {
		now := &settings{conf: &kubeletconfig.Config{}, cgroupVersion: tc.version}
		now.conf.Kubelet.FeatureGates = map[string]bool{"MemoryQoS": tc.gate}
		now.conf.Kubelet.MemoryReservationPolicy = kubeletv1beta1.MemoryReservationPolicy(tc.policy)
		registry := prometheus.NewRegistry()
		registry.MustRegister(protectionCensus{pods, &node{settings: now}})
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range []string{"kubelet_memory_qos_node_memory_min_bytes", "kubelet_memory_qos_node_memory_low_bytes"} {
			for _, f := range families {
				if f.GetName() == name {
					got = append(got, strconv.FormatFloat(f.GetMetric()[0].GetGauge().GetValue(), 'f', -1, 64))
				}
			}
		}
		if got := strings.Join(got, " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestOldKernels: memory.high hangs processes on kernels before 5.9.
func TestOldKernels(t *testing.T) {
	for kernel, want := range map[string]bool{"5.8.18-300.fc33": true, "4.18.0-553.el8": true, "5.9.0": false, "5.10.0-32-amd64": false, "6.18.44-fc": false, "?": false} {
		if before59(kernel) != want {
			t.Errorf("%s: want %t", kernel, want)
		}
	}
}

// full is a cgroup that takes no limit below what it uses.
type full struct {
	Cgroups
	usage int64
	limit *int64
}

func (f *full) Ensure(_ pod.CgroupName, values cgroup.Values) error {
	if *values.Memory < f.usage {
		return errors.New("device or resource busy")
	}
	f.limit = values.Memory
	return nil
}

func (f *full) MemoryUsage(pod.CgroupName) (int64, error) { return f.usage, nil }

// TestAClassIsNotLimitedBelowItsUsage: where the kernel refuses a limit, usage is the limit.
func TestAClassIsNotLimitedBelowItsUsage(t *testing.T) {
	f := &full{usage: 100}
	of := &tree{of: func(pod.CgroupDriver) Cgroups { return f }}
	for wanted, want := range map[int64]int64{50: 100, 100: 100, 200: 200} {
		err := of.limit(&settings{}, v1.PodQOSBurstable, cgroup.Values{CgroupResources: pod.CgroupResources{Memory: &wanted}})
		if err != nil || *f.limit != want {
			t.Errorf("%d: limit %d, %v, want %d", wanted, *f.limit, err, want)
		}
	}
}
