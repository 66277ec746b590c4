// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
)

// minMilliCPULimit is the smallest CPU limit a quota can express (1 ms of 100 ms).
const minMilliCPULimit = 10

func (r *renderer) containerID(id string) string {
	return cmp.Or(r.Node.RuntimeName, "containerd") + "://" + id
}

// bareID takes the scheme off a container id.
func bareID(id string) string {
	_, bare, _ := strings.Cut(id, "://")
	return bare
}

// resources are the specification's, with cpu and memory of a running container
// replaced by what the runtime says is in force. Where it says nothing (no runtime
// reports a memory request), it is what podworker gave, else what was reported before
// about the same container.
func (r *renderer) resources(c *v1.Container, i *instance, old *v1.ContainerStatus) *v1.ResourceRequirements {
	out := c.Resources.DeepCopy()
	if !i.running() {
		return out
	}
	actual := i.GetResources().GetLinux()
	var before v1.ResourceRequirements
	if old != nil && old.State.Running != nil && old.ContainerID == r.containerID(i.GetId()) && old.Resources != nil {
		before = *old.Resources
	}
	// What podworker gave to it is what it has, where the runtime does not say.
	if given := r.Facts.Containers[c.Name].Given; given != nil {
		before = *pod.Sized(&v1.Container{}, *given).Resources.DeepCopy()
	}
	if out.Limits != nil {
		override(out.Limits, before.Limits, v1.ResourceCPU, cpuLimit(actual), minMilliCPULimit)
		override(out.Limits, before.Limits, v1.ResourceMemory, memoryLimit(actual), 0)
	}
	if out.Requests != nil {
		override(out.Requests, before.Requests, v1.ResourceCPU, cpuRequest(actual), pod.MinShares)
		// No runtime reports a memory request.
		override(out.Requests, before.Requests, v1.ResourceMemory, nil, 0)
	}
	return out
}

// override puts actual into list. Where actual and the wish are both at or below the
// smallest amount the kernel can express, the wish stays.
func override(list, before v1.ResourceList, name v1.ResourceName, actual *resource.Quantity, smallest int64) {
	switch {
	case actual != nil:
		if wish := list[name]; name != v1.ResourceCPU || actual.MilliValue() > smallest || wish.MilliValue() > smallest {
			list[name] = *actual
		}
	default:
		if q, ok := before[name]; ok {
			list[name] = q.DeepCopy()
		}
	}
}

func cpuLimit(l *runtimeapi.LinuxContainerResources) *resource.Quantity {
	if l.GetCpuPeriod() <= 0 || l.GetCpuQuota() <= 0 {
		return nil
	}
	milli := l.GetCpuQuota() * 1000 / l.GetCpuPeriod()
	if milli <= 0 {
		return nil
	}
	return resource.NewMilliQuantity(milli, resource.DecimalSI)
}

func cpuRequest(l *runtimeapi.LinuxContainerResources) *resource.Quantity {
	if l.GetCpuShares() < pod.MinShares {
		return nil
	}
	milli := (l.GetCpuShares()*1000 + pod.SharesPerCPU - 1) / pod.SharesPerCPU
	return resource.NewMilliQuantity(milli, resource.DecimalSI)
}

func memoryLimit(l *runtimeapi.LinuxContainerResources) *resource.Quantity {
	if l.GetMemoryLimitInBytes() <= 0 {
		return nil
	}
	return resource.NewQuantity(l.GetMemoryLimitInBytes(), resource.BinarySI)
}

// podResources renders what the pod as a whole was given, also when only its
// containers say what they want (InPlacePodLevelResourcesVerticalScaling). While a
// resize is under way, or fails, that is what it had before.
func (r *renderer) podResources(out *v1.PodStatus) {
	if r.Facts.ResizesUnknown && r.old.Resources != nil {
		out.AllocatedResources, out.Resources = r.old.AllocatedResources.DeepCopy(), r.old.Resources.DeepCopy()
		return
	}
	out.AllocatedResources = pod.Requests(r.Pod)
	under := slices.ContainsFunc(r.Facts.Resizes, func(z Resize) bool { return z.State == ResizeInProgress || z.State == ResizeFailed })
	if under && r.old.Resources != nil {
		out.Resources = r.old.Resources.DeepCopy()
		return
	}
	if out.Phase == v1.PodRunning {
		out.Resources = inForce(r.Pod)
		return
	}
	out.Resources = &v1.ResourceRequirements{Requests: pod.Requests(r.Pod), Limits: pod.Limits(r.Pod)}
}

// inForce is what the cgroup of a pod that runs was given: CPU and memory, a limit where the
// pod as a whole has one. Of what no cgroup bounds it has what the pod asks for as a whole.
func inForce(p *v1.Pod) *v1.ResourceRequirements {
	out := &v1.ResourceRequirements{}
	if p.Spec.Resources != nil {
		out = p.Spec.Resources.DeepCopy()
	}
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	maps.Copy(requests, out.Requests)
	maps.Copy(limits, out.Limits)
	if memory, ok := pod.Requests(p)[v1.ResourceMemory]; ok {
		requests[v1.ResourceMemory] = memory
	}
	given := pod.PodCgroupResources(p, true, pod.DefaultQuotaPeriod)
	actual := &runtimeapi.LinuxContainerResources{
		CpuShares: int64(ptr.Deref(given.CPUShares, 0)), CpuQuota: ptr.Deref(given.CPUQuota, 0),
		CpuPeriod: int64(ptr.Deref(given.CPUPeriod, 0)), MemoryLimitInBytes: ptr.Deref(given.Memory, 0),
	}
	override(requests, nil, v1.ResourceCPU, cpuRequest(actual), pod.MinShares)
	override(limits, nil, v1.ResourceCPU, cpuLimit(actual), minMilliCPULimit)
	override(limits, nil, v1.ResourceMemory, memoryLimit(actual), 0)
	out.Requests, out.Limits = requests, limits
	return out
}

// volumeMounts says how a container's volumes are mounted. Whether a mount is
// read-only all the way down is the runtime's answer; of a container that was
// never made only a demand is known.
func volumeMounts(c *v1.Container, i *instance) []v1.VolumeMountStatus {
	var out []v1.VolumeMountStatus
	for _, m := range c.VolumeMounts {
		s := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if i.recursivelyReadOnly(m) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		out = append(out, s)
	}
	return out
}

func (i *instance) recursivelyReadOnly(m v1.VolumeMount) bool {
	if i == nil {
		return m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled
	}
	return slices.ContainsFunc(i.GetMounts(), func(made *runtimeapi.Mount) bool {
		return made.GetContainerPath() == m.MountPath && made.GetRecursiveReadOnly()
	})
}

func user(u *runtimeapi.ContainerUser) *v1.ContainerUser {
	if u == nil {
		return nil
	}
	out := &v1.ContainerUser{}
	if l := u.GetLinux(); l != nil {
		out.Linux = &v1.LinuxContainerUser{UID: l.GetUid(), GID: l.GetGid(), SupplementalGroups: slices.Clone(l.GetSupplementalGroups())}
	}
	return out
}
