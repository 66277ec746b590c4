// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// resizeState is how far a change of the pod's resources is; nil when there is
// none. source is the one the pod is known to have.
func (in *Inputs) resizeState(uid types.UID, source string, f *step.Facts) *podworkerv1.Resize {
	item, ok := in.Allocations.Get(string(uid))
	if !ok || f.State != step.Syncing || item.GetPending() == nil && item.GetAllocation() == item.GetSettled() {
		return nil
	}
	state := &podworkerv1.Resize{
		PendingReason: item.GetPending().GetReason(), PendingMessage: item.GetPending().GetMessage(),
		PendingGeneration: item.GetPending().GetGeneration(),
		InProgress:        item.GetAllocation() != item.GetSettled(), Generation: item.GetGeneration(),
	}
	// resource notes the generation that asked first. A later one that asks for the same gets the
	// same answer, and status takes one without an answer for not judged yet.
	if d, _ := in.desired(uid, source); state.PendingReason != "" && d != nil && d.Asks == item.GetAsked() {
		state.PendingGeneration = max(state.PendingGeneration, d.Pod.Generation)
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
