// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// OwnedByNode reports whether the node is the only writer of the condition. Others are
// kept as they are; DisruptionTarget is shared.
func OwnedByNode(t v1.PodConditionType) bool {
	switch t {
	case v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady,
		v1.PodReadyToStartContainers, v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting:
		return true
	}
	return false
}

// conditions sets the conditions; phase and containers are rendered already.
func (r *renderer) conditions(out *v1.PodStatus) {
	for _, c := range r.old.Conditions {
		if !OwnedByNode(c.Type) && c.Type != v1.DisruptionTarget {
			out.Conditions = append(out.Conditions, c)
		}
	}
	foreign := out.Conditions
	r.resizeConditions(out)
	r.disruption(out)
	r.add(out, r.sandboxReady())
	r.add(out, r.initializedCondition(out))
	containersReady := r.containersReady(out)
	ready := r.ready(containersReady, foreign)
	r.add(out, ready)
	r.add(out, containersReady)
	r.add(out, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	if restart.MayRestartAll(r.Pod) {
		r.add(out, r.allRestarting(out))
	}
}

// add appends a condition, stamped with the generation it was derived from and with the
// time its status last changed.
func (r *renderer) add(out *v1.PodStatus, c v1.PodCondition) {
	if c.ObservedGeneration == 0 && c.Type != v1.AllContainersRestarting {
		c.ObservedGeneration = r.Pod.Generation
	}
	c.LastTransitionTime = metav1.NewTime(r.Now)
	if old := findCondition(r.old.Conditions, c.Type); old != nil {
		if old.Status == c.Status && !old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		}
		c.LastProbeTime = old.LastProbeTime
	}
	out.Conditions = append(out.Conditions, c)
}

// resizeConditions reports in-place resizes, unless the pod is over.
func (r *renderer) resizeConditions(out *v1.PodStatus) {
	if r.Facts.Lifecycle.ContainersStopped() {
		return
	}
	if r.Facts.ResizesUnknown {
		for _, t := range []v1.PodConditionType{v1.PodResizePending, v1.PodResizeInProgress} {
			if old := findCondition(r.old.Conditions, t); old != nil {
				out.Conditions = append(out.Conditions, *old)
			}
		}
		return
	}
	for _, z := range r.Facts.Resizes {
		c := resizeCondition(z)
		r.add(out, c)
		added := &out.Conditions[len(out.Conditions)-1]
		old := findCondition(r.old.Conditions, c.Type)
		if old == nil || old.Reason != c.Reason { // as a kubelet's: all are True
			added.LastTransitionTime = metav1.NewTime(r.Now)
		}
		// A kubelet's is the time of the last try, which would have the status written for each.
		if old == nil || old.Reason != c.Reason || old.Message != c.Message || old.ObservedGeneration != c.ObservedGeneration {
			added.LastProbeTime = metav1.NewTime(r.Now)
		}
	}
}

func resizeCondition(z Resize) v1.PodCondition {
	c := v1.PodCondition{Status: v1.ConditionTrue, Message: z.Message, ObservedGeneration: z.ObservedGeneration}
	switch z.State {
	case ResizeDeferred:
		c.Type, c.Reason = v1.PodResizePending, v1.PodReasonDeferred
	case ResizeInfeasible:
		c.Type, c.Reason = v1.PodResizePending, v1.PodReasonInfeasible
	case ResizeFailed:
		c.Type, c.Reason = v1.PodResizeInProgress, v1.PodReasonError
	default:
		c.Type = v1.PodResizeInProgress
	}
	return c
}

// disruption says that the node ended the pod for its own sake. It comes together with
// the terminal phase, not before.
func (r *renderer) disruption(out *v1.PodStatus) {
	v := r.Facts.Verdict
	old := findCondition(r.old.Conditions, v1.DisruptionTarget)
	if v == nil || !v.Disruption || !pod.IsTerminalPhase(out.Phase) {
		if old != nil {
			out.Conditions = append(out.Conditions, *old)
		}
		return
	}
	message := v.Message
	if v.Kind == VerdictPreempted {
		message = messagePreempted
	}
	r.add(out, v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue,
		Reason: v1.PodReasonTerminationByKubelet, Message: message,
	})
}

func (r *renderer) sandboxReady() v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: truth(r.rec.readySandbox(r.Pod) != nil)}
	if old := findCondition(r.old.Conditions, c.Type); old != nil && !r.Observed.Complete {
		c.Status = old.Status
	}
	return c
}

func (r *renderer) initializedCondition(out *v1.PodStatus) v1.PodCondition {
	done := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	var incomplete []string
	for i := range r.Pod.Spec.InitContainers {
		c := &r.Pod.Spec.InitContainers[i]
		s := findStatus(out.InitContainerStatuses, c.Name)
		if pod.IsSidecar(c) {
			if s.Started == nil || !*s.Started {
				incomplete = append(incomplete, c.Name)
			}
		} else if !s.Ready {
			incomplete = append(incomplete, c.Name)
		}
	}
	if out.Phase == v1.PodSucceeded {
		done.Reason = reasonPodCompleted
		return done
	}
	if len(incomplete) == 0 || anyStarted(out.ContainerStatuses) {
		return done
	}
	// Once initialized, a pod stays so while its containers are restarted.
	if old := findCondition(r.old.Conditions, v1.PodInitialized); old != nil && old.Status == v1.ConditionTrue {
		return done
	}
	return v1.PodCondition{
		Type: v1.PodInitialized, Status: v1.ConditionFalse, Reason: reasonNotInitialized,
		Message: fmt.Sprintf("containers with incomplete status: %s", incomplete),
	}
}

func anyStarted(list []v1.ContainerStatus) bool {
	return slices.ContainsFunc(list, func(s v1.ContainerStatus) bool { return s.State.Running != nil || s.State.Terminated != nil })
}

func (r *renderer) containersReady(out *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	switch out.Phase {
	case v1.PodSucceeded:
		c.Reason = reasonPodCompleted
		return c
	case v1.PodFailed:
		c.Reason = reasonPodFailed
		return c
	}
	var unready []string
	for kind, container := range pod.Containers(r.Pod) {
		var s *v1.ContainerStatus
		switch kind {
		case pod.Sidecar:
			s = findStatus(out.InitContainerStatuses, container.Name)
		case pod.Regular:
			s = findStatus(out.ContainerStatuses, container.Name)
		default:
			continue
		}
		if !s.Ready {
			unready = append(unready, container.Name)
		}
	}
	if len(unready) > 0 {
		c.Reason = reasonContainersNotReady
		c.Message = fmt.Sprintf("containers with unready status: %s", unready)
		return c
	}
	c.Status = v1.ConditionTrue
	return c
}

// ready is ContainersReady and every readiness gate.
func (r *renderer) ready(containersReady v1.PodCondition, foreign []v1.PodCondition) v1.PodCondition {
	c := containersReady
	c.Type = v1.PodReady
	if c.Status != v1.ConditionTrue {
		return c
	}
	var unready []string
	for _, gate := range r.Pod.Spec.ReadinessGates {
		switch g := findCondition(foreign, gate.ConditionType); {
		case g == nil:
			unready = append(unready, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case g.Status != v1.ConditionTrue:
			unready = append(unready, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, g.Status))
		}
	}
	if len(unready) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, reasonGatesNotReady, strings.Join(unready, ", ")
	}
	return c
}

func (r *renderer) allRestarting(out *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	switch {
	case out.Phase == v1.PodSucceeded:
		c.Reason = reasonPodCompleted
	case out.Phase == v1.PodFailed:
		c.Reason = reasonPodFailed
	case r.Facts.AllContainersRestarting:
		c.Status, c.Reason, c.Message = v1.ConditionTrue, reasonRestartAllStarted, "container exited with restart policy rule"
	}
	return c
}

func findCondition(list []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

func truth(b bool) v1.ConditionStatus {
	if b {
		return v1.ConditionTrue
	}
	return v1.ConditionFalse
}
