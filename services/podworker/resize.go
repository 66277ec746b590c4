// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// resizeState is how far a change of the pod's resources is; nil when there is
// none. Until resource has judged what the pod asks for, that is as the API server has it: a
// pod that is taken over says all the time that its resize waits. sized is the pod with what
// it is allocated.
func (in *Inputs) resizeState(f *step.Facts, desired *step.Desired, sized *v1.Pod) *podworkerv1.Resize {
	item, _ := in.Allocations.Get(string(sized.UID))
	switch {
	case f.State != step.Syncing && f.State != step.Pending:
		return nil
	case item.GetPending() != nil || item.GetAllocation() != item.GetSettled():
		return resizeOf(item, desired, f)
	case desired != nil && sized != desired.Pod:
		return reportedResize(desired.Pod.Status.Conditions)
	}
	return nil
}

// reportedResize is what conditions tell of a resize.
func reportedResize(conditions []v1.PodCondition) (state *podworkerv1.Resize) {
	for _, c := range conditions {
		if c.Status != v1.ConditionTrue || c.Type != v1.PodResizePending && c.Type != v1.PodResizeInProgress {
			continue
		}
		if state == nil {
			state = &podworkerv1.Resize{}
		}
		if c.Type == v1.PodResizePending {
			state.PendingReason, state.PendingMessage, state.PendingGeneration = c.Reason, c.Message, c.ObservedGeneration
			continue
		}
		state.InProgress, state.Error, state.Generation = true, c.Message, c.ObservedGeneration
	}
	return state
}

// resizeOf is how far resource's judgement and the containers are.
func resizeOf(item *resourcev1.PodAllocation, desired *step.Desired, f *step.Facts) *podworkerv1.Resize {
	state := &podworkerv1.Resize{
		PendingReason: item.GetPending().GetReason(), PendingMessage: item.GetPending().GetMessage(),
		PendingGeneration: item.GetPending().GetGeneration(),
		InProgress:        item.GetAllocation() != item.GetSettled(), Generation: item.GetGeneration(),
	}
	// resource notes the generation that asked first. A later one that asks for the same gets the
	// same answer, and status takes one without an answer for not judged yet.
	if state.PendingReason != "" && desired != nil && desired.Asks == item.GetAsked() {
		state.PendingGeneration = max(state.PendingGeneration, desired.Pod.Generation)
	}
	if !state.InProgress {
		return state
	}
	state.Error = item.GetBlocked()
	for _, kind := range []step.Kind{step.Update, step.Settle} {
		if failed, ok := f.Failures[step.Action{Kind: kind}.Key()]; ok && !failed.Away {
			state.Error = failed.Message
		}
	}
	return state
}

// sizeOf is what a container was given, as it is published.
func sizeOf(size *pod.Size) *podworkerv1.ContainerSize {
	if size == nil {
		return nil
	}
	return &podworkerv1.ContainerSize{
		CpuRequest: size.CPURequest, CpuLimit: size.CPULimit, MemoryRequest: size.MemoryRequest, MemoryLimit: size.MemoryLimit,
	}
}
