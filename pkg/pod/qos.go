// SPDX-License-Identifier: Apache-2.0

package pod

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// QOS is the quality of service class of a pod: the one in its status when there is one
// (it never changes), the computed one otherwise.
func QOS(p *v1.Pod) v1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	return ComputeQOS(p)
}

// ComputeQOS derives the class from cpu and memory: Guaranteed when each container (or
// the pod, where spec.resources is set) has limits for both and requests equal to them;
// BestEffort when nothing is requested or limited; Burstable otherwise. Quantities of
// zero count as absent, ephemeral containers have no resources.
func ComputeQOS(p *v1.Pod) v1.PodQOSClass {
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	limited := true
	if r := p.Spec.Resources; r != nil {
		addCompute(requests, r.Requests)
		n := addCompute(limits, r.Limits)
		// Without any limit the lengths differ below, or nothing is set at all.
		limited = n == 2
	} else {
		for kind, c := range Containers(p) {
			if kind == Ephemeral {
				continue
			}
			addCompute(requests, c.Resources.Requests)
			if addCompute(limits, c.Resources.Limits) != 2 {
				limited = false
			}
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
		return v1.PodQOSBestEffort
	}
	if !limited || len(requests) != len(limits) {
		return v1.PodQOSBurstable
	}
	for name, request := range requests {
		limit, ok := limits[name]
		if !ok || limit.Cmp(request) != 0 {
			return v1.PodQOSBurstable
		}
	}
	return v1.PodQOSGuaranteed
}

// addCompute adds the positive cpu and memory of list to sum and returns how many of
// the two it found.
func addCompute(sum, list v1.ResourceList) (found int) {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		q, ok := list[name]
		if !ok || q.Sign() <= 0 {
			continue
		}
		found++
		q = q.DeepCopy()
		q.Add(sum[name])
		sum[name] = q
	}
	return found
}

// Guaranteed reports whether a container would be of the class Guaranteed by itself: it has
// requests of cpu and memory, and limits equal to them. Of a pod with resources of its own,
// such containers alone have parts that are exclusively theirs (KEP-5526).
func Guaranteed(c *v1.Container) bool {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		request := c.Resources.Requests[name]
		if request.IsZero() || !request.Equal(c.Resources.Limits[name]) {
			return false
		}
	}
	return true
}

// OOM score adjustments of the two ends.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// OOMScoreAdj is the oom_score_adj of a container's processes on a node with
// memoryCapacity bytes. Burstable containers get 1000 minus their request in thousandths
// of the node, kept within 3…999. Memory requested for the pod beyond the sum of its
// containers is shared out evenly. A sidecar never dies before the regular container
// with the smallest request.
func OOMScoreAdj(p *v1.Pod, c *v1.Container, memoryCapacity int64) int {
	if IsNodeCritical(p) {
		return oomGuaranteed
	}
	switch QOS(p) {
	case v1.PodQOSGuaranteed:
		return oomGuaranteed
	case v1.PodQOSBestEffort:
		return oomBestEffort
	}
	if memoryCapacity <= 0 {
		return oomBestEffort - 1
	}
	extra := unclaimedMemoryShare(p)
	score := burstableScore(c.Resources.Requests.Memory().Value()+extra, memoryCapacity)
	if _, kind := FindContainer(p, c.Name); kind == Sidecar {
		score = min(score, burstableScore(smallestRegularRequest(p)+extra, memoryCapacity))
	}
	if score < 1000+oomGuaranteed {
		return 1000 + oomGuaranteed
	}
	if score == oomBestEffort {
		return oomBestEffort - 1
	}
	return int(score)
}

func burstableScore(request, capacity int64) int64 { return 1000 - 1000*request/capacity }

// unclaimedMemoryShare is each container's share of the memory requested at pod level
// that no container asks for.
func unclaimedMemoryShare(p *v1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(p) || p.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	n := int64(len(p.Spec.Containers) + len(p.Spec.InitContainers))
	if n == 0 {
		return 0
	}
	claimed := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	return (p.Spec.Resources.Requests.Memory().Value() - claimed.Memory().Value()) / n
}

func smallestRegularRequest(p *v1.Pod) int64 {
	if len(p.Spec.Containers) == 0 {
		return 0
	}
	smallest := p.Spec.Containers[0].Resources.Requests.Memory().Value()
	for i := range p.Spec.Containers {
		smallest = min(smallest, p.Spec.Containers[i].Resources.Requests.Memory().Value())
	}
	return smallest
}
