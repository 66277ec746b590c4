// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func container(name string, requests, limits v1.ResourceList) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func sidecar(c v1.Container) v1.Container {
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	return c
}

func TestQOS(t *testing.T) {
	full := list("cpu", "1", "memory", "1Gi")
	tests := []struct {
		name string
		spec v1.PodSpec
		want v1.PodQOSClass
	}{
		{"nothing", v1.PodSpec{Containers: []v1.Container{container("c", nil, nil)}}, v1.PodQOSBestEffort},
		{"zero counts as nothing", v1.PodSpec{Containers: []v1.Container{container("c", list("cpu", "0"), nil)}}, v1.PodQOSBestEffort},
		{"other resources do not count", v1.PodSpec{Containers: []v1.Container{container("c", list("hugepages-2Mi", "2Mi"), list("hugepages-2Mi", "2Mi"))}}, v1.PodQOSBestEffort},
		{"guaranteed", v1.PodSpec{Containers: []v1.Container{container("c", full, full)}}, v1.PodQOSGuaranteed},
		{"other spelling", v1.PodSpec{Containers: []v1.Container{container("c", list("cpu", "1000m", "memory", "1024Mi"), full)}}, v1.PodQOSGuaranteed},
		{"one without limits", v1.PodSpec{Containers: []v1.Container{container("c", full, full), container("d", nil, nil)}}, v1.PodQOSBurstable},
		{"init container counts", v1.PodSpec{InitContainers: []v1.Container{container("i", nil, nil)}, Containers: []v1.Container{container("c", full, full)}}, v1.PodQOSBurstable},
		{"only cpu", v1.PodSpec{Containers: []v1.Container{container("c", list("cpu", "1"), list("cpu", "1"))}}, v1.PodQOSBurstable},
		{"request below limit", v1.PodSpec{Containers: []v1.Container{container("c", list("cpu", "1", "memory", "1Mi"), full)}}, v1.PodQOSBurstable},
		{"pod level guaranteed", v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: full, Limits: full}, Containers: []v1.Container{container("c", nil, nil)}}, v1.PodQOSGuaranteed},
		{"pod level requests only", v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: full}, Containers: []v1.Container{container("c", full, full)}}, v1.PodQOSBurstable},
		{"pod level empty", v1.PodSpec{Resources: &v1.ResourceRequirements{}, Containers: []v1.Container{container("c", full, full)}}, v1.PodQOSBestEffort},
	}
	for _, tt := range tests {
		if got := ComputeQOS(&v1.Pod{Spec: tt.spec}); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if got := QOS(&v1.Pod{Status: v1.PodStatus{QOSClass: v1.PodQOSGuaranteed}}); got != v1.PodQOSGuaranteed {
		t.Errorf("QOS ignores the status: %s", got)
	}
}

func TestOOMScoreAdj(t *testing.T) {
	const capacity = 4 << 30
	guaranteed := list("cpu", "1", "memory", "1Gi")
	tests := []struct {
		name string
		pod  v1.Pod
		of   string
		want int
	}{
		{"best effort", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", nil, nil)}}}, "c", 1000},
		{"guaranteed", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", guaranteed, guaranteed)}}}, "c", -997},
		{"node critical", v1.Pod{Spec: v1.PodSpec{Priority: ptr.To(SystemCriticalPriority), PriorityClassName: SystemNodeCritical, Containers: []v1.Container{container("c", nil, nil)}}}, "c", -997},
		{"a quarter of the node", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", list("memory", "1Gi"), nil)}}}, "c", 750},
		{"next to nothing", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", list("cpu", "1"), nil)}}}, "c", 999},
		{"more than the node", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", list("memory", "8Gi"), nil)}}}, "c", 3},
		{"sidecar goes with the smallest", v1.Pod{Spec: v1.PodSpec{
			InitContainers: []v1.Container{sidecar(container("s", nil, nil))},
			Containers:     []v1.Container{container("c", list("memory", "1Gi"), nil), container("d", list("memory", "2Gi"), nil)},
		}}, "s", 750},
		{"pod level requests are shared out", v1.Pod{Spec: v1.PodSpec{
			Resources:  &v1.ResourceRequirements{Requests: list("memory", "2Gi")},
			Containers: []v1.Container{container("c", list("memory", "1Gi"), nil), container("d", nil, nil)},
		}}, "c", 625},
	}
	for _, tt := range tests {
		c, _ := FindContainer(&tt.pod, tt.of)
		if got := OOMScoreAdj(&tt.pod, c, capacity); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	p := v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", list("memory", "1Gi"), nil)}}}
	if got := OOMScoreAdj(&p, &p.Spec.Containers[0], 0); got != 999 {
		t.Errorf("unknown capacity: %d", got)
	}
}

func TestSums(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{
			container("i", list("cpu", "3"), nil),
			sidecar(container("s", list("cpu", "500m"), nil)),
			container("j", list("cpu", "3"), nil),
		},
		Containers: []v1.Container{container("c", list("cpu", "1"), nil), container("d", list("cpu", "1"), nil)},
		Overhead:   list("cpu", "100m"),
	}}
	cpu := Requests(p)[v1.ResourceCPU]
	if cpu.String() != "3600m" { // j beside s, and the overhead
		t.Errorf("requests %s", cpu.String())
	}
	cpu = RequestsWithoutOverhead(p)[v1.ResourceCPU]
	if cpu.String() != "3500m" {
		t.Errorf("requests without overhead %s", cpu.String())
	}
	// 1.5Gi is kept as a decimal, which the sums must not change in the pod.
	p = &v1.Pod{Spec: v1.PodSpec{
		Resources: &v1.ResourceRequirements{Limits: list("memory", "1.5Gi")}, Overhead: list("memory", "64Mi"), Containers: []v1.Container{container("c", nil, nil)},
	}}
	for range 2 {
		memory := Limits(p)[v1.ResourceMemory]
		if want := int64(1600 << 20); memory.Value() != want {
			t.Errorf("limit %d, want %d", memory.Value(), want)
		}
	}
}

func TestCPU(t *testing.T) {
	for milli, want := range map[int64]uint64{0: 2, -1: 2, 1: 2, 100: 102, 250: 256, 1000: 1024, 255999: 262142, 256000: 262144, 1 << 50: 262144} {
		if got := MilliCPUToShares(milli); got != want {
			t.Errorf("MilliCPUToShares(%d) = %d, want %d", milli, got, want)
		}
	}
	for _, tt := range []struct {
		milli  int64
		period time.Duration
		want   int64
	}{{0, DefaultQuotaPeriod, 0}, {1, DefaultQuotaPeriod, 1000}, {10, DefaultQuotaPeriod, 1000}, {250, DefaultQuotaPeriod, 25000}, {1500, DefaultQuotaPeriod, 150000}, {1000, 5 * time.Millisecond, 5000}} {
		if got := MilliCPUToQuota(tt.milli, tt.period); got != tt.want {
			t.Errorf("MilliCPUToQuota(%d, %v) = %d, want %d", tt.milli, tt.period, got, tt.want)
		}
	}
	for shares, want := range map[uint64]uint64{0: 0, 1: 1, 2: 1, 1024: 39, 262144: 10000, 1 << 40: 10000} {
		if got := SharesToWeight(shares); got != want {
			t.Errorf("SharesToWeight(%d) = %d, want %d", shares, got, want)
		}
	}
}

func TestPodCgroupResources(t *testing.T) {
	show := func(r CgroupResources) string {
		s := fmt.Sprint("shares=", *r.CPUShares)
		if r.CPUQuota != nil {
			s += fmt.Sprint(" quota=", *r.CPUQuota, "/", *r.CPUPeriod)
		}
		if r.Memory != nil {
			s += fmt.Sprint(" memory=", *r.Memory)
		}
		return s
	}
	full := list("cpu", "1", "memory", "1Gi")
	for _, tt := range []struct {
		name    string
		spec    v1.PodSpec
		enforce bool
		want    string
	}{
		{"guaranteed", v1.PodSpec{Containers: []v1.Container{container("c", full, full)}}, true, "shares=1024 quota=100000/100000 memory=1073741824"},
		{"quota off", v1.PodSpec{Containers: []v1.Container{container("c", full, full)}}, false, "shares=1024 quota=-1/100000 memory=1073741824"},
		{"one without a limit", v1.PodSpec{Containers: []v1.Container{container("c", full, full), container("d", nil, list("cpu", "1"))}}, true, "shares=1024 quota=200000/100000"},
		{"best effort", v1.PodSpec{Containers: []v1.Container{container("c", nil, nil)}}, true, "shares=2"},
		{"pod level", v1.PodSpec{Resources: &v1.ResourceRequirements{Limits: list("memory", "1Gi")}, Containers: []v1.Container{container("c", nil, nil)}}, true, "shares=2 memory=1073741824"},
	} {
		if got := show(PodCgroupResources(&v1.Pod{Spec: tt.spec}, tt.enforce, DefaultQuotaPeriod)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestContainerResources(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{
		Resources: &v1.ResourceRequirements{Limits: list("cpu", "2", "memory", "2Gi", "hugepages-2Mi", "4Mi")},
		Containers: []v1.Container{
			container("c", list("cpu", "250m", "memory", "1Gi"), list("cpu", "500m", "hugepages-1Gi", "1Gi")),
		},
	}}
	o := ResourceOptions{
		MemoryCapacity: 4 << 30, SwapCapacity: 1 << 30, CPUQuota: true, CgroupV2: true, SwapController: true, Swap: LimitedSwap,
		HugePageSizes: []string{"2MB", "1GB"},
	}
	want := &runtimeapi.LinuxContainerResources{
		CpuShares: 256, CpuPeriod: 100000, CpuQuota: 50000, MemoryLimitInBytes: 2 << 30, OomScoreAdj: 750,
		HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}, {PageSize: "1GB", Limit: 1 << 30}},
		Unified:        map[string]string{"memory.oom.group": "1", "memory.swap.max": "268435456"},
	}
	if diff := cmp.Diff(want, ContainerResources(p, &p.Spec.Containers[0], o), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	// A container that leaves its request and its limit open.
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	if got := ContainerResources(p, &p.Spec.Containers[0], o); got.CpuShares != 2048 || got.CpuQuota != 200000 {
		t.Errorf("%d shares and a quota of %d, want those of the pod's limit, 2048 and 200000", got.CpuShares, got.CpuQuota)
	}
	// cgroup v1, a limit without a request, exclusive CPUs.
	p = &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", nil, list("cpu", "1", "memory", "1Gi"))}}}
	want = &runtimeapi.LinuxContainerResources{
		CpuShares: 1024, CpuPeriod: 50000, CpuQuota: -1, MemoryLimitInBytes: 1 << 30, MemorySwapLimitInBytes: 1 << 30, OomScoreAdj: 999,
	}
	got := ContainerResources(p, &p.Spec.Containers[0], ResourceOptions{
		MemoryCapacity: 4 << 30, CPUQuota: true, QuotaPeriod: 50 * time.Millisecond, ExclusiveCPUs: true, SwapController: true, SingleProcessOOMKill: true,
	})
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	p.Spec.Overhead = list("cpu", "100m", "memory", "64Mi")
	resources, overhead := SandboxResources(p, ResourceOptions{CPUQuota: true})
	if resources.CpuShares != 1024 || overhead.CpuShares != 102 || overhead.MemoryLimitInBytes != 64<<20 || resources.MemoryLimitInBytes != 1<<30 {
		t.Errorf("sandbox %v, overhead %v", resources, overhead)
	}
}
