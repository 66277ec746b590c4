// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ReportedSizes are the resources that a pod has by its status, as the agent before this one
// wrote it: those of the specification, but for CPU and memory of which the containers that
// were made have another amount, since a resize was not allocated or not carried out. Nil
// where the status tells of no container. A quantity that is the same is the
// specification's, so that equal resources are the same to [SizesID].
func ReportedSizes(p *v1.Pod) *v1.PodSpec {
	inits, a := reportedSizes(p.Spec.InitContainers, p.Status.InitContainerStatuses)
	regular, b := reportedSizes(p.Spec.Containers, p.Status.ContainerStatuses)
	if !a && !b {
		return nil
	}
	return &v1.PodSpec{InitContainers: inits, Containers: regular, Resources: reportedPodSizes(p)}
}

func reportedSizes(list []v1.Container, statuses []v1.ContainerStatus) (out []v1.Container, known bool) {
	for i := range list {
		c := v1.Container{Name: list[i].Name, Resources: list[i].Resources}
		for j := range statuses {
			if s := &statuses[j]; s.Name == c.Name && s.ContainerID != "" && s.Resources != nil {
				c.Resources.Requests = reported(c.Resources.Requests, s.Resources.Requests, sameRequest)
				c.Resources.Limits = reported(c.Resources.Limits, s.Resources.Limits, sameLimit)
				known = true
			}
		}
		out = append(out, c)
	}
	return out, known
}

// reportedPodSizes are those of spec.resources. What the status has of them includes the
// overhead. Of requests it has what is allocated: what the cgroup has is rounded.
func reportedPodSizes(p *v1.Pod) *v1.ResourceRequirements {
	if p.Spec.Resources == nil {
		return nil
	}
	out := *p.Spec.Resources
	if had := p.Status.AllocatedResources; had != nil {
		out.Requests = reported(out.Requests, without(had, p.Spec.Overhead), sameRequest)
	}
	if had := p.Status.Resources; had != nil {
		out.Limits = reported(out.Limits, without(had.Limits, p.Spec.Overhead), samePodLimit)
	}
	return &out
}

func without(list, overhead v1.ResourceList) v1.ResourceList {
	out := maps.Clone(list)
	for name, q := range overhead {
		if had, ok := out[name]; ok {
			had = had.DeepCopy()
			had.Sub(q)
			out[name] = had
		}
	}
	return out
}

// reported is list with what a status has in place of what is not the same. What list does
// not name a status may have by inheritance.
func reported(list, status v1.ResourceList, same func(name v1.ResourceName, asked, had resource.Quantity) bool) v1.ResourceList {
	out := maps.Clone(list)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		asked, ok := list[name]
		had, has := status[name]
		switch {
		case !ok:
		case !has || had.Value() >= unlimited:
			delete(out, name)
		case !same(name, asked, had):
			out[name] = had
		}
	}
	return out
}

// unlimited is the least that is no limit of memory: the kernel's value for none on cgroup v1
// is a little less than what an int64 holds.
const unlimited = 1 << 62

// sameRequest compares requests of CPU as the kernel has them: it has a most and a least.
func sameRequest(name v1.ResourceName, asked, had resource.Quantity) bool {
	if name == v1.ResourceCPU {
		return MilliCPUToShares(asked.MilliValue()) == MilliCPUToShares(had.MilliValue())
	}
	return asked.Value() == had.Value()
}

func sameLimit(name v1.ResourceName, asked, had resource.Quantity) bool {
	if name == v1.ResourceCPU {
		return asked.MilliValue() == had.MilliValue()
	}
	return asked.Value() == had.Value()
}

// largestPage of memory, on any machine.
const largestPage = 64 << 10

// samePodLimit: the limit of the pod's memory is read from its cgroup, in whole pages.
func samePodLimit(name v1.ResourceName, asked, had resource.Quantity) bool {
	if name == v1.ResourceMemory {
		less := asked.Value() - had.Value()
		return 0 <= less && less < largestPage
	}
	return sameLimit(name, asked, had)
}
