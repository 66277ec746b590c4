// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	resourcehelper "k8s.io/component-helpers/resource"
)

// CPU arithmetic of the kernel's completely fair scheduler.
const (
	// MinShares and MaxShares bound cpu.shares.
	MinShares = 2
	MaxShares = 262144
	// SharesPerCPU is what one CPU is worth.
	SharesPerCPU = 1024
	// DefaultQuotaPeriod is cpu.cfs_period_us unless configured otherwise.
	DefaultQuotaPeriod = 100 * time.Millisecond
	// MinQuota is the smallest cpu.cfs_quota_us, in microseconds.
	MinQuota = 1000
)

// IsExtended reports whether a resource is an extended one, which alone plugins may offer:
// domain/name, of no domain of Kubernetes (k8s.io/api/core/v1, ResourceName). Huge pages are
// Kubernetes' own.
func IsExtended(name v1.ResourceName) bool {
	of := string(name)
	return strings.Contains(of, "/") && !strings.Contains(of, v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(of, v1.DefaultResourceRequestsPrefix) && len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+of)) == 0
}

// Requests are a pod's effective requests: the larger of any init container (with the
// sidecars started before it) and the sum of regular containers and sidecars; pod-level
// requests replace them; overhead is added.
func Requests(p *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(own(p), resourcehelper.PodResourcesOptions{})
}

// Limits are a pod's effective limits, by the rule of Requests.
func Limits(p *v1.Pod) v1.ResourceList {
	return resourcehelper.PodLimits(own(p), resourcehelper.PodResourcesOptions{})
}

// RequestsWithoutOverhead and LimitsWithoutOverhead are the resources of the sandbox.
func RequestsWithoutOverhead(p *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(own(p), resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
}

// LimitsWithoutOverhead is Limits without the pod overhead; see RequestsWithoutOverhead.
func LimitsWithoutOverhead(p *v1.Pod) v1.ResourceList {
	return resourcehelper.PodLimits(own(p), resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
}

// own returns a pod that shares no quantities with p. The helpers hand pod-level
// quantities out as they are and add the overhead to them; one that is kept as a
// decimal (1.5Gi) would be changed in the pod itself.
func own(p *v1.Pod) *v1.Pod {
	if p.Spec.Resources == nil {
		return p
	}
	return &v1.Pod{Spec: *p.Spec.DeepCopy()}
}

// MilliCPUToShares converts a CPU request to cpu.shares.
func MilliCPUToShares(milliCPU int64) uint64 {
	if milliCPU <= 0 {
		return MinShares
	}
	if milliCPU >= MaxShares*1000/SharesPerCPU {
		return MaxShares
	}
	return uint64(max(milliCPU*SharesPerCPU/1000, MinShares))
}

// MilliCPUToQuota converts a CPU limit to cpu.cfs_quota_us for the period. 0 means no
// limit.
func MilliCPUToQuota(milliCPU int64, period time.Duration) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return max(milliCPU*period.Microseconds()/1000, MinQuota)
}

// SharesToWeight converts cpu.shares to cpu.weight (cgroup v2) for pods and their
// parents: linear from 2…262144 to 1…10000. Runtimes convert those of containers
// themselves, newer ones by another curve.
func SharesToWeight(shares uint64) uint64 {
	if shares == 0 {
		return 0
	}
	shares = min(max(shares, MinShares), MaxShares)
	return 1 + (shares-MinShares)*9999/(MaxShares-MinShares)
}

// CgroupResources are the values of a pod's cgroup; nil leaves one unset.
type CgroupResources struct {
	CPUShares *uint64
	// CPUQuota in microseconds for each CPUPeriod, -1 unlimited.
	CPUQuota *int64
	// CPUPeriod in microseconds.
	CPUPeriod *uint64
	// Memory limit in bytes.
	Memory *int64
	// HugePages limits in bytes by page size in bytes.
	HugePages map[int64]int64
	// MemoryRequest in bytes, for reservations; 0 without one.
	MemoryRequest int64
}

// PodCgroupResources are the values for a pod's cgroup. enforceCPULimits false (or
// exclusive CPUs) lifts the quota. A limit is only set on the pod when each of its
// containers, or the pod itself, has one.
func PodCgroupResources(p *v1.Pod, enforceCPULimits bool, period time.Duration) CgroupResources {
	requests := Requests(p)
	cpuLimited, memoryLimited := true, true
	limits := resourcehelper.PodLimits(own(p), resourcehelper.PodResourcesOptions{
		ContainerFn: func(res v1.ResourceList, _ resourcehelper.ContainerType) {
			cpuLimited = cpuLimited && !res.Cpu().IsZero()
			memoryLimited = memoryLimited && !res.Memory().IsZero()
		},
	})
	if r := p.Spec.Resources; r != nil {
		cpuLimited = cpuLimited || !r.Limits.Cpu().IsZero()
		memoryLimited = memoryLimited || !r.Limits.Memory().IsZero()
	}
	shares := MilliCPUToShares(requests.Cpu().MilliValue())
	quota := MilliCPUToQuota(limits.Cpu().MilliValue(), period)
	if !enforceCPULimits {
		quota = -1
	}
	periodUsec := uint64(period.Microseconds())
	memory := limits.Memory().Value()

	out := CgroupResources{HugePages: HugePageLimits(requests), MemoryRequest: requests.Memory().Value()}
	switch QOS(p) {
	case v1.PodQOSGuaranteed:
		out.CPUShares, out.CPUQuota, out.CPUPeriod, out.Memory = &shares, &quota, &periodUsec, &memory
	case v1.PodQOSBurstable:
		out.CPUShares = &shares
		if cpuLimited {
			out.CPUQuota, out.CPUPeriod = &quota, &periodUsec
		}
		if memoryLimited {
			out.Memory = &memory
		}
	default:
		shares = MinShares
		out.CPUShares = &shares
	}
	return out
}

// HugePageLimits picks the hugepages-<size> entries of a list: bytes by page size.
func HugePageLimits(list v1.ResourceList) map[int64]int64 {
	out := map[int64]int64{}
	for name, q := range list {
		if size, ok := HugePageSize(name); ok {
			out[size.Value()] += q.Value()
		}
	}
	return out
}

// HugePageSize is the page size of a resource named hugepages-<size>.
func HugePageSize(name v1.ResourceName) (resource.Quantity, bool) {
	s, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !ok {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(s)
	return q, err == nil && q.Sign() > 0
}
