// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// phase sets phase, reason and message, and finishes the container statuses of a pod
// that is over. A static pod that was stopped is not over: its next version follows.
func (r *renderer) phase(out *v1.PodStatus) {
	stopped := r.Facts.Lifecycle.ContainersStopped()
	out.Phase = r.fromContainers(out, stopped)
	forced := stopped && !pod.IsStatic(r.Pod)
	if forced {
		r.endContainers(out)
	}
	was := r.old.Phase
	if !pod.IsTerminalPhase(was) && pod.IsTerminalPhase(r.Pod.Status.Phase) {
		was = r.Pod.Status.Phase
	}
	if r.refusedBefore() {
		was = ""
	}
	if forced && !pod.IsTerminalPhase(out.Phase) {
		out.Phase = v1.PodFailed
	}
	verdict := r.Facts.Verdict
	if verdict != nil && !(verdict.yields() && out.Phase == v1.PodSucceeded) {
		out.Phase = v1.PodFailed
	}
	if pod.IsTerminalPhase(was) {
		out.Phase = was // never left
	} else if pod.IsTerminalPhase(out.Phase) && !stopped {
		// Not over before podworker says so, whatever has ended: what the pod holds of the
		// node is counted for it until then, and a terminal phase tells the scheduler that
		// there is room (as a kubelet's couldHaveRunningContainers).
		out.Phase = cmp.Or(was, v1.PodPending)
	}
	switch {
	case out.Phase == was:
		out.Reason, out.Message = r.old.Reason, r.old.Message
		if out.Reason == "" && out.Message == "" && was == r.Pod.Status.Phase {
			out.Reason, out.Message = r.Pod.Status.Reason, r.Pod.Status.Message
		}
	case verdict != nil && pod.IsTerminalPhase(out.Phase):
		out.Reason, out.Message = verdict.Reason, verdict.Message
	}
}

// yields reports whether a pod that the verdict ends is Succeeded when its containers all
// exit with code 0: what they did counts for more then, as it does for a kubelet.
func (v *Verdict) yields() bool {
	return v.Kind == VerdictShutdown || v.Kind == VerdictPreempted
}

// refusedBefore reports whether the previous status is that of a static pod which had
// been refused: such a pod is asked for again, so that this end is none.
func (r *renderer) refusedBefore() bool {
	return pod.IsStatic(r.Pod) && r.old.Phase == v1.PodFailed && strings.HasPrefix(r.old.Message, prefixRejected)
}

// fromContainers derives the phase from the container statuses of the rendering.
func (r *renderer) fromContainers(out *v1.PodStatus, stopped bool) v1.PodPhase {
	t := r.tally(out)
	switch {
	case t.initFailed:
		return v1.PodFailed
	case t.initPending, t.sidecarPending && !r.rec.activeRegular(r.Pod), t.waiting > 0:
		return v1.PodPending
	case t.running > 0 && t.unknown == 0:
		return v1.PodRunning
	case t.running == 0 && t.stopped > 0 && t.unknown == 0:
		switch {
		case !(stopped && !pod.IsStatic(r.Pod)) && t.restartable:
			return v1.PodRunning
		case t.stopped == t.succeeded:
			return v1.PodSucceeded
		}
		return v1.PodFailed
	}
	return v1.PodPending
}

// tally counts what the phase depends on.
type tally struct {
	initFailed, initPending, sidecarPending bool
	restartable                             bool
	running, waiting, unknown               int
	stopped, succeeded                      int
}

func (r *renderer) tally(out *v1.PodStatus) tally {
	var t tally
	for kind, c := range pod.Containers(r.Pod) {
		switch kind {
		case pod.Init:
			t.init(r.Pod, c, findStatus(out.InitContainerStatuses, c.Name))
		case pod.Sidecar:
			t.sidecar(findStatus(out.InitContainerStatuses, c.Name))
		case pod.Regular:
			s := findStatus(out.ContainerStatuses, c.Name)
			t.regular(r.Pod, c, s)
			t.restartable = t.restartable || r.replaced(c.Name, lastEnd(s))
		}
	}
	return t
}

func (t *tally) init(p *v1.Pod, c *v1.Container, s *v1.ContainerStatus) {
	end := lastEnd(s)
	switch {
	case end == nil:
		t.initPending = true
	case end.ExitCode != 0 && !restartable(p, c, end):
		t.initFailed = true
	}
}

func (t *tally) sidecar(s *v1.ContainerStatus) {
	switch {
	case s.State.Running != nil:
		t.running++
		if s.Started == nil || !*s.Started {
			t.sidecarPending = true
		}
	case s.State.Terminated != nil, s.LastTerminationState.Terminated != nil:
		// A sidecar that ended comes back; the pod's phase does not depend on it.
	case s.State.Waiting != nil:
		t.sidecarPending = true
		t.waiting++
	default:
		t.sidecarPending = true
		t.unknown++
	}
}

func (t *tally) regular(p *v1.Pod, c *v1.Container, s *v1.ContainerStatus) {
	switch end := lastEnd(s); {
	case s.State.Running != nil:
		t.running++
	case end != nil:
		t.stopped++
		if restartable(p, c, end) {
			t.restartable = true
		}
		if s.State.Terminated != nil && end.ExitCode == 0 {
			t.succeeded++
		}
	case s.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}

// lastEnd is how a container that does not run ended last, nil when it runs or never
// ended.
func lastEnd(s *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case s.State.Terminated != nil:
		return s.State.Terminated
	case s.State.Waiting != nil:
		return s.LastTerminationState.Terminated
	}
	return nil
}

func restartable(p *v1.Pod, c *v1.Container, end *v1.ContainerStateTerminated) bool {
	return end.Reason == reason.RestartingAllContainers || restart.Restartable(p, c, restart.Exit{Code: end.ExitCode})
}

// endContainers makes every container that has any evidence of having run terminated:
// with the pod's containers gone for good, one without an end was lost.
func (r *renderer) endContainers(out *v1.PodStatus) {
	if r.initialized(out) {
		for i := range out.ContainerStatuses {
			end(&out.ContainerStatuses[i])
		}
	}
	begun := 0
	for i := range out.InitContainerStatuses {
		if s := &out.InitContainerStatuses[i]; s.State.Waiting == nil || s.LastTerminationState.Terminated != nil {
			begun = i
		}
	}
	for i := range out.InitContainerStatuses {
		if i <= begun {
			end(&out.InitContainerStatuses[i])
		}
	}
	for i := range out.EphemeralContainerStatuses {
		if s := &out.EphemeralContainerStatuses[i]; s.State.Running != nil {
			end(s)
		}
	}
}

func end(s *v1.ContainerStatus) {
	if s.State.Terminated != nil {
		return
	}
	s.State = v1.ContainerState{Terminated: lost(messageLostAtTermination)}
	s.Ready = false
	if s.Started != nil {
		s.Started = new(false)
	}
}

// initialized reports whether regular containers were ever to start, by what was reported
// before the end: in the end the last init container may have exited with code 0 because it was
// told to. Where nothing was reported the statuses of now have to do.
func (r *renderer) initialized(now *v1.PodStatus) bool {
	n := len(r.Pod.Spec.InitContainers)
	if n == 0 {
		return true
	}
	by := now
	if r.Reported != nil && len(r.Reported.ContainerStatuses) > 0 && len(r.Reported.InitContainerStatuses) > 0 {
		by = r.Reported
	}
	for i := range by.ContainerStatuses {
		if s := &by.ContainerStatuses[i]; s.State.Waiting == nil || s.LastTerminationState.Terminated != nil {
			return true
		}
	}
	if by == r.Reported && pod.IsTerminalPhase(by.Phase) {
		return false // so it was judged when it ended
	}
	last := &r.Pod.Spec.InitContainers[n-1]
	s := findStatus(by.InitContainerStatuses, last.Name)
	if s == nil {
		return false
	}
	if pod.IsSidecar(last) {
		return s.State.Running != nil && s.Started != nil && *s.Started
	}
	return slices.ContainsFunc([]v1.ContainerState{s.State, s.LastTerminationState}, func(state v1.ContainerState) bool {
		return state.Terminated != nil && state.Terminated.ExitCode == 0
	})
}
