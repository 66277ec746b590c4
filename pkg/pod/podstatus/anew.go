// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// begunAnew reports whether the previous status is the end of a former life of a
// static pod: podworker has taken it up again since, because its manifest was removed
// and written again as it was, or because the node did not go down after all. Times
// are cut to seconds, as in statuses.
func (r *renderer) begunAnew() bool {
	if !pod.IsStatic(r.Pod) || !pod.IsTerminalPhase(r.old.Phase) || r.old.StartTime.IsZero() {
		return false
	}
	start := r.Facts.StartTime.Truncate(time.Second)
	if !start.After(r.old.StartTime.Time) {
		return false
	}
	for _, list := range r.oldContainers() {
		for _, c := range list {
			if end := c.State.Terminated; end != nil && end.FinishedAt.Truncate(time.Second).After(start) {
				return false
			}
		}
	}
	return true
}

// beginAnew keeps of a former life only how the containers ended and how often they
// were started again: they wait.
func (r *renderer) beginAnew() {
	r.old = v1.PodStatus{
		InitContainerStatuses: r.old.InitContainerStatuses, ContainerStatuses: r.old.ContainerStatuses,
		ObservedGeneration: r.old.ObservedGeneration,
	}
	for _, list := range r.oldContainers() {
		for i := range list {
			if list[i].State.Terminated != nil {
				list[i].LastTerminationState = list[i].State
				list[i].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
			}
		}
	}
}

// oldContainers are the containers of the previous status that can be started again.
func (r *renderer) oldContainers() [][]v1.ContainerStatus {
	return [][]v1.ContainerStatus{r.old.InitContainerStatuses, r.old.ContainerStatuses}
}
