// SPDX-License-Identifier: Apache-2.0

// Package resize judges whether a running pod may have other resources
// (KEP-1287), and in which order those are judged that have to wait. It is pure.
package resize

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/admit"
)

// Policies of the node that keep some pods from being resized.
type Policies struct {
	// StaticCPU: Guaranteed pods may own CPUs; StaticMemory: NUMA nodes.
	StaticCPU, StaticMemory bool
	// PodLevel: spec.resources may change, not only its containers'.
	PodLevel bool
	// Swap is what containers may use of it.
	Swap pod.ResourceOptions
}

// Pending is why a resize is not allocated. Its reason is "Deferred" for what may
// fit later, or "Infeasible" for what never will.
type Pending struct {
	Reason, Message string
	// Cause is the reason in the words of admission, which a kubelet's event says.
	Cause string
	// Detail of an infeasible resize, in the words of the kubelet's metric.
	Detail string
}

// Judge returns nil when the pod may have what desired asks for in place of what
// is allocated, beside the other pods of the node. What the kubelet asks at
// admission it asks here again; the answer is then Deferred, whatever it is.
func Judge(desired, allocated *v1.Pod, others []*v1.Pod, node admit.Node, policies Policies) *Pending {
	for _, check := range []func(desired, allocated *v1.Pod, policies Policies) *Pending{swap, podLevel, static} {
		if pending := check(desired, allocated, policies); pending != nil {
			return pending
		}
	}
	if r := admit.Judge(desired, others, node); r != nil {
		return &Pending{Reason: v1.PodReasonDeferred, Cause: r.Reason, Message: r.Message}
	}
	return nil
}

func infeasible(detail, message string) *Pending {
	return &Pending{Reason: v1.PodReasonInfeasible, Cause: v1.PodReasonInfeasible, Message: message, Detail: detail}
}

// swap: what a container may swap is derived from its memory request when it
// starts, and does not follow.
func swap(desired, allocated *v1.Pod, policies Policies) *Pending {
	for kind, c := range pod.Containers(desired) {
		if kind == pod.Ephemeral {
			continue
		}
		was, _ := pod.FindContainer(allocated, c.Name)
		if was == nil || was.Resources.Requests.Memory().Equal(*c.Resources.Requests.Memory()) || restartsForMemory(was) {
			continue
		}
		if pod.UsesSwap(desired, c, policies.Swap) || pod.UsesSwap(allocated, was, policies.Swap) {
			return infeasible("swap_limitation", "In-place resize of containers with swap is not supported.")
		}
	}
	return nil
}

func restartsForMemory(c *v1.Container) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p v1.ContainerResizePolicy) bool {
		return p.ResourceName == v1.ResourceMemory && p.RestartPolicy == v1.RestartContainer
	})
}

func podLevel(desired, allocated *v1.Pod, policies Policies) *Pending {
	if policies.PodLevel || equality.Semantic.DeepEqual(desired.Spec.Resources, allocated.Spec.Resources) {
		return nil
	}
	return infeasible("plr_feature_gate_off", "InPlacePodLevelResourcesVerticalScaling is disabled")
}

// static: what a Guaranteed pod may own as a whole does not change while it runs.
func static(desired, allocated *v1.Pod, policies Policies) *Pending {
	if pod.QOS(desired) != v1.PodQOSGuaranteed {
		return nil
	}
	if policies.StaticCPU && changes(desired, allocated, v1.ResourceCPU) {
		return infeasible("guaranteed_pod_cpu_manager_static_policy",
			`Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`)
	}
	if policies.StaticMemory && changes(desired, allocated, v1.ResourceMemory) {
		return infeasible("guaranteed_pod_memory_manager_static_policy",
			`Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`)
	}
	return nil
}

// changes reports whether a container's request changes; its limit is the same.
func changes(desired, allocated *v1.Pod, name v1.ResourceName) bool {
	for kind, c := range pod.Containers(desired) {
		if kind == pod.Ephemeral {
			continue
		}
		if was, _ := pod.FindContainer(allocated, c.Name); was != nil {
			a, b := was.Resources.Requests[name], c.Resources.Requests[name]
			if !a.Equal(b) {
				return true
			}
		}
	}
	return false
}

// Waiting is a pod whose resize has to be judged.
type Waiting struct {
	Desired, Allocated *v1.Pod
	// Since is when it was first put off; zero when it was not judged yet.
	Since time.Time
}

// Sort orders them as they are judged: those that ask for no more than they have,
// then by priority, Guaranteed before others, and those that wait longest first.
func Sort(all []Waiting) {
	slices.SortStableFunc(all, func(a, b Waiting) int {
		return cmp.Or(
			compare(b.grows(), a.grows()),
			cmp.Compare(pod.Priority(b.Desired), pod.Priority(a.Desired)),
			compare(guaranteed(a.Desired), guaranteed(b.Desired)),
			compare(!a.Since.IsZero(), !b.Since.IsZero()),
			a.Since.Compare(b.Since),
			cmp.Compare(a.Desired.UID, b.Desired.UID),
		)
	})
}

// compare puts the one that is first.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (w Waiting) grows() bool {
	was, now := pod.Requests(w.Allocated), pod.Requests(w.Desired)
	return now.Cpu().Cmp(*was.Cpu()) > 0 || now.Memory().Cmp(*was.Memory()) > 0
}

func guaranteed(p *v1.Pod) bool { return pod.QOS(p) == v1.PodQOSGuaranteed }

// Operation is one value that a resize changes, in the words of the kubelet's
// metric.
type Operation struct{ Resource, Requirement, Operation string }

// Operations are what a pod asks for now that it did not ask for before.
func Operations(before, now *v1.Pod) []Operation {
	var all []Operation
	for kind, c := range pod.Containers(now) {
		was, _ := pod.FindContainer(before, c.Name)
		if kind == pod.Ephemeral || was == nil {
			continue
		}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			for requirement, lists := range map[string][2]v1.ResourceList{
				"requests": {was.Resources.Requests, c.Resources.Requests}, "limits": {was.Resources.Limits, c.Resources.Limits},
			} {
				a, b := lists[0][name], lists[1][name]
				if operation := operation(a.Cmp(b), a.IsZero(), b.IsZero()); operation != "" {
					all = append(all, Operation{string(name), requirement, operation})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Operation) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return all
}

func operation(change int, none, gone bool) string {
	switch {
	case change == 0:
		return ""
	case none:
		return "add"
	case gone:
		return "remove"
	case change < 0:
		return "increase"
	}
	return "decrease"
}

// Room is a cgroup with room for both: what runs has one of them, and is to have
// the other. A value that one of them leaves alone is left alone.
func Room(a, b pod.CgroupResources) pod.CgroupResources {
	out := b
	out.CPUShares = larger(a.CPUShares, b.CPUShares)
	out.CPUQuota, out.Memory = roomier(a.CPUQuota, b.CPUQuota), roomier(a.Memory, b.Memory)
	if out.CPUQuota == nil {
		out.CPUPeriod = nil
	}
	return out
}

func larger(a, b *uint64) *uint64 {
	switch {
	case a == nil:
		return b
	case b == nil || *a > *b:
		return a
	}
	return b
}

// roomier compares limits, where none at all (0 or less) is the largest.
func roomier(a, b *int64) *int64 {
	switch {
	case a == nil || b == nil:
		return nil
	case *a <= 0 || *b > 0 && *a > *b:
		return a
	}
	return b
}
