// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SwapMode is the configured use of swap (KubeletConfiguration.memorySwap.swapBehavior).
type SwapMode string

// The modes; empty reads as NoSwap.
const (
	NoSwap      SwapMode = "NoSwap"
	LimitedSwap SwapMode = "LimitedSwap"
)

// ResourceOptions are the node's part of a container's cgroup values.
type ResourceOptions struct {
	// MemoryCapacity and SwapCapacity of the node, in bytes.
	MemoryCapacity, SwapCapacity int64
	// CPUQuota is KubeletConfiguration.cpuCFSQuota.
	CPUQuota bool
	// QuotaPeriod is cpuCFSQuotaPeriod; 0 means DefaultQuotaPeriod.
	QuotaPeriod time.Duration
	// ExclusiveCPUs is true for a container that owns its CPUs: it gets no quota.
	ExclusiveCPUs bool
	// CgroupV2 is true on a unified hierarchy.
	CgroupV2 bool
	// SingleProcessOOMKill spares the other processes of a container whose memory ran out.
	SingleProcessOOMKill bool
	// SwapController is true when the kernel accounts swap.
	SwapController bool
	// Swap is the configured mode.
	Swap SwapMode
	// HugePageSizes the node has, in cgroup form (2MB, 1GB).
	HugePageSizes []string
}

// ContainerResources are the CRI resources of a container. Limits a container leaves open
// are those of the pod where it has pod-level ones, and a CPU request that it leaves open is
// its limit; cpuset and unified keys of resource
// managers are not set here.
func ContainerResources(p *v1.Pod, c *v1.Container, o ResourceOptions) *runtimeapi.LinuxContainerResources {
	limit := effectiveLimit(p, c, v1.ResourceCPU)
	request, requested := c.Resources.Requests[v1.ResourceCPU]
	if !requested {
		request = limit
	}
	out := cpuAndMemory(request, limit, effectiveLimit(p, c, v1.ResourceMemory), o)
	out.OomScoreAdj = int64(OOMScoreAdj(p, c, o.MemoryCapacity))
	out.HugepageLimits = hugePageLimits(p, c, o.HugePageSizes)
	if o.SwapController {
		setSwap(out, p, c, o)
	}
	return out
}

// SandboxResources are the sums of a pod's resources as the runtime gets them, and its
// overhead.
func SandboxResources(p *v1.Pod, o ResourceOptions) (resources, overhead *runtimeapi.LinuxContainerResources) {
	requests, limits := RequestsWithoutOverhead(p), LimitsWithoutOverhead(p)
	request, ok := requests[v1.ResourceCPU]
	if !ok {
		request = limits[v1.ResourceCPU]
	}
	resources = cpuAndMemory(request, limits[v1.ResourceCPU], limits[v1.ResourceMemory], o)
	overhead = &runtimeapi.LinuxContainerResources{}
	if len(p.Spec.Overhead) > 0 {
		cpu := p.Spec.Overhead[v1.ResourceCPU]
		overhead = cpuAndMemory(cpu, cpu, p.Spec.Overhead[v1.ResourceMemory], o)
	}
	return resources, overhead
}

// effectiveLimit is the container's limit or, in a pod with pod-level resources, the
// pod's.
func effectiveLimit(p *v1.Pod, c *v1.Container, name v1.ResourceName) resource.Quantity {
	limit := c.Resources.Limits[name]
	if limit.IsZero() && p.Spec.Resources != nil {
		return p.Spec.Resources.Limits[name]
	}
	return limit
}

func cpuAndMemory(cpuRequest, cpuLimit, memoryLimit resource.Quantity, o ResourceOptions) *runtimeapi.LinuxContainerResources {
	out := &runtimeapi.LinuxContainerResources{
		CpuShares:          int64(MilliCPUToShares(cpuRequest.MilliValue())),
		MemoryLimitInBytes: memoryLimit.Value(),
	}
	if o.CPUQuota {
		period := cmp.Or(o.QuotaPeriod, DefaultQuotaPeriod)
		out.CpuPeriod = period.Microseconds()
		out.CpuQuota = MilliCPUToQuota(cpuLimit.MilliValue(), period)
		if o.ExclusiveCPUs {
			out.CpuQuota = -1
		}
	}
	if o.CgroupV2 && !o.SingleProcessOOMKill {
		out.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return out
}

func hugePageLimits(p *v1.Pod, c *v1.Container, sizes []string) []*runtimeapi.HugepageLimit {
	wanted := map[int64]int64{}
	if p.Spec.Resources != nil {
		maps.Copy(wanted, HugePageLimits(p.Spec.Resources.Limits))
	}
	maps.Copy(wanted, HugePageLimits(c.Resources.Limits))
	byName := make(map[string]int64, len(wanted))
	for size, limit := range wanted {
		byName[HugePageUnit(size)] = limit
	}
	var out []*runtimeapi.HugepageLimit
	for _, size := range sizes {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: size, Limit: uint64(byName[size])})
	}
	return out
}

// HugePageUnit writes a page size the way the kernel names its cgroup files: 2MB, 1GB.
func HugePageUnit(size int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for size > 0 && size%1024 == 0 && i < len(units)-1 {
		size /= 1024
		i++
	}
	return fmt.Sprintf("%d%s", size, units[i])
}

// UsesSwap reports whether a container may swap: LimitedSwap on cgroup v2, in a Burstable
// pod that is not critical, with a memory request below its limit (KEP-2400).
func UsesSwap(p *v1.Pod, c *v1.Container, o ResourceOptions) bool {
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	return o.Swap == LimitedSwap && o.SwapController && o.CgroupV2 && !IsCritical(p) &&
		QOS(p) == v1.PodQOSBurstable && request.Cmp(*limit) != 0
}

func setSwap(out *runtimeapi.LinuxContainerResources, p *v1.Pod, c *v1.Container, o ResourceOptions) {
	if !o.CgroupV2 {
		// memory+swap equal to memory: nothing beyond the limit is swapped out.
		out.MemorySwapLimitInBytes = out.MemoryLimitInBytes
		return
	}
	var limit int64
	if request := c.Resources.Requests.Memory().Value(); UsesSwap(p, c, o) && o.MemoryCapacity > 0 && request <= o.MemoryCapacity {
		limit = int64(float64(request) / float64(o.MemoryCapacity) * float64(o.SwapCapacity))
	}
	if out.Unified == nil {
		out.Unified = map[string]string{}
	}
	out.Unified["memory.swap.max"] = strconv.FormatInt(limit, 10)
}
