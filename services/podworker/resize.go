// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// lives is what a worker knows of its pod from an earlier life of podworker, and whether that
// still holds.
type lives struct {
	// journaled: the journal had the pod when this process started.
	journaled bool
	// sized: this process has compared the sizes of the containers with what resource has
	// allocated. Before that a kubelet may have given them others.
	sized bool
}

// resizeState is how far a change of the pod's resources is; nil when there is none. It is
// unknown until resource has said what a pod is allocated that had containers before this
// process, and has judged what the pod asks for.
func (f *freshness) resizeState(facts *step.Facts, desired *step.Desired, sized *v1.Pod, of lives) (state *podworkerv1.Resize, unknown bool) {
	item := f.allotment().item
	switch {
	case facts.State != step.Syncing && facts.State != step.Pending:
		return nil, false
	case item.GetPending() != nil || item.GetAllocation() != item.GetSettled():
		return resizeOf(item, desired, facts), false
	case of.sized:
		return nil, desired != nil && sized != desired.Pod
	}
	record, known := f.current()
	return nil, of.journaled || !known || record != nil && len(record.Containers) > 0
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
