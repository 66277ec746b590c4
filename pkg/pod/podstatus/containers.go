// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// renderer holds one rendering while it is made. It has many methods because each renders one
// part of a status, and every part reads the same input.
type renderer struct {
	Input
	old v1.PodStatus
	rec record
}

// containers renders the statuses of all containers: regular ones and ephemeral ones
// sorted by name, init containers in the order of the specification.
func (r *renderer) containers(out *v1.PodStatus) {
	for kind, c := range pod.Containers(r.Pod) {
		switch kind {
		case pod.Init, pod.Sidecar:
			out.InitContainerStatuses = append(out.InitContainerStatuses, r.container(kind, c, r.old.InitContainerStatuses))
		case pod.Ephemeral:
			out.EphemeralContainerStatuses = append(out.EphemeralContainerStatuses, r.container(kind, c, r.old.EphemeralContainerStatuses))
		default:
			out.ContainerStatuses = append(out.ContainerStatuses, r.container(kind, c, r.old.ContainerStatuses))
		}
	}
	byName := func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(out.ContainerStatuses, byName)
	slices.SortFunc(out.EphemeralContainerStatuses, byName)
}

func (r *renderer) container(kind pod.ContainerKind, c *v1.Container, olds []v1.ContainerStatus) v1.ContainerStatus {
	old := findStatus(olds, c.Name)
	facts := r.Facts.Containers[c.Name]
	newest := r.rec.newest(c.Name)
	if r.unborn(c, facts, old) {
		newest = nil
	}

	var s v1.ContainerStatus
	switch {
	case newest != nil:
		s = r.observed(c, newest, old)
		if list := r.rec.instances[c.Name]; len(list) > 1 && list[1].exited() && !newest.lostBefore(old, s.ContainerID) {
			s.LastTerminationState = v1.ContainerState{Terminated: r.terminated(list[1], old)}
		}
	case old != nil && !r.Observed.Complete:
		s = *old.DeepCopy()
	default:
		s = r.absent(kind, c, old)
	}
	s.RestartCount = max(s.RestartCount, facts.RestartCount)
	s.VolumeMounts = volumeMounts(c, newest)
	switch {
	case kind != pod.Regular: // as a kubelet
	case r.Health.Known:
		s.AllocatedResourcesStatus = r.Health.Containers[c.Name]
	case old != nil:
		s.AllocatedResourcesStatus = old.AllocatedResourcesStatus
	}
	r.waiting(kind, c, facts, &s)
	if old != nil && r.illegal(kind, c, old, &s) {
		s = *old.DeepCopy()
	}
	if end, last := s.State.Terminated, s.LastTerminationState.Terminated; s.RestartCount == 0 && end != nil && last != nil &&
		end.ContainerID != "" && end.ContainerID == last.ContainerID {
		s.LastTerminationState.Terminated = nil // none was before it: it was to start again, and does not
	}
	r.probed(kind, c, old, &s)
	return s
}

// unborn reports whether a container was made for the first time and is about to be
// started: its ID is reported with its start, which saves a write.
func (r *renderer) unborn(c *v1.Container, facts ContainerFacts, old *v1.ContainerStatus) bool {
	list := r.rec.instances[c.Name]
	held := facts.Waiting != nil && facts.Waiting.Reason != reason.ContainerCreating && facts.Waiting.Reason != reason.PodInitializing
	return len(list) == 1 && list[0].State == runtimeapi.ContainerState_CONTAINER_CREATED && list[0].restartCount == 0 &&
		!held && facts.Backoff == nil && (old == nil || old.ContainerID == "")
}

// observed renders a container that the runtime knows.
func (r *renderer) observed(c *v1.Container, i *instance, old *v1.ContainerStatus) v1.ContainerStatus {
	s := v1.ContainerStatus{
		Name:               c.Name,
		RestartCount:       i.restartCount,
		Image:              cmp.Or(i.GetImage().GetImage(), c.Image),
		ImageID:            i.GetImageRef(),
		ContainerID:        r.containerID(i.GetId()),
		AllocatedResources: c.Resources.Requests.DeepCopy(),
		User:               user(i.GetUser()),
	}
	if signal := i.GetStopSignal(); r.Node.StopSignals && signal != runtimeapi.Signal_RUNTIME_DEFAULT {
		name := v1.Signal(signal.String()) // KEP-4960
		s.StopSignal = &name
	}
	if old != nil {
		s.RestartCount = max(s.RestartCount, old.RestartCount)
		if r.Facts.ResizesUnknown && old.ContainerID == s.ContainerID {
			s.AllocatedResources = old.AllocatedResources.DeepCopy()
		}
		// What is gone from the runtime is remembered by the previous status.
		if old.ContainerID != s.ContainerID && old.State.Terminated != nil {
			s.LastTerminationState.Terminated = old.State.Terminated.DeepCopy()
		} else {
			s.LastTerminationState.Terminated = old.LastTerminationState.Terminated.DeepCopy()
		}
	}
	if reset := r.Facts.Containers[c.Name].ResetCount; reset > 0 && i.restartCount == reset {
		s.LastTerminationState.Terminated = removedForRestart() // the one before it, seen without containers or not
	}
	switch i.State {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(unixNano(i.GetStartedAt()))}
		// An instance without a count of its own is one more than the one before.
		// podworker's facts count it themselves, and may have come first: then the
		// old count has it already.
		_, counted := r.Facts.Containers[c.Name]
		if !counted && old != nil && old.State.Terminated != nil && old.ContainerID != s.ContainerID && old.RestartCount >= i.restartCount {
			s.RestartCount = old.RestartCount + 1
		}
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		s.State.Terminated = r.terminated(*i, old)
	case runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		switch {
		case old != nil && old.State.Running != nil:
			s.State.Terminated = lost(messageLostAtTermination)
			if r.Facts.AllContainersRestarting {
				s.State.Terminated.Reason = reason.RestartingAllContainers
			}
			s.RestartCount = max(s.RestartCount, old.RestartCount+1)
		case old != nil && old.State.Terminated != nil && old.ContainerID == s.ContainerID:
			s.State.Terminated = old.State.Terminated.DeepCopy()
		default:
			s.State.Waiting = &v1.ContainerStateWaiting{}
		}
	default: // created, not started
		s.State.Waiting = r.creating()
	}
	s.Resources = r.resources(c, i, old)
	return s
}

func (r *renderer) terminated(i instance, old *v1.ContainerStatus) *v1.ContainerStateTerminated {
	why := i.GetReason()
	if r.outOfMemory(i, old) {
		why = reason.OOMKilled
	}
	return &v1.ContainerStateTerminated{
		ExitCode:    i.GetExitCode(),
		Reason:      why,
		Message:     i.GetMessage(),
		StartedAt:   metav1.NewTime(unixNano(i.GetStartedAt())),
		FinishedAt:  metav1.NewTime(unixNano(i.GetFinishedAt())),
		ContainerID: r.containerID(i.GetId()),
	}
}

// killed is the exit code of a process that SIGKILL ended, and of a shell whose command it did.
const killed = 128 + 9

// outOfMemory reports whether a container was killed for want of memory and the runtime says
// "Error": containerd says so when it hears of the exit before the kernel's event, or never of
// that. What the former status said of the container holds, as the kernel's word is not kept
// for ever.
func (r *renderer) outOfMemory(i instance, old *v1.ContainerStatus) bool {
	if i.GetExitCode() != killed || i.GetReason() != reason.Error {
		return false
	}
	if slices.Contains(r.OOMKilled, i.GetId()) {
		return true
	}
	id := r.containerID(i.GetId())
	said := func(t *v1.ContainerStateTerminated) bool {
		return t != nil && t.ContainerID == id && t.Reason == reason.OOMKilled
	}
	return old != nil && (said(old.State.Terminated) || said(old.LastTerminationState.Terminated))
}

// creating is what a container waits for while nothing else holds it up.
func (r *renderer) creating() *v1.ContainerStateWaiting {
	if len(r.Pod.Spec.InitContainers) > 0 {
		return &v1.ContainerStateWaiting{Reason: reason.PodInitializing}
	}
	return &v1.ContainerStateWaiting{Reason: reason.ContainerCreating}
}

// absent renders a container that the runtime does not know: not made yet, or removed.
func (r *renderer) absent(kind pod.ContainerKind, c *v1.Container, old *v1.ContainerStatus) v1.ContainerStatus {
	if old != nil && old.State.Terminated != nil && !r.Facts.AllContainersRestarting {
		return *old.DeepCopy()
	}
	s := v1.ContainerStatus{
		Name:  c.Name,
		Image: c.Image,
		State: v1.ContainerState{Waiting: r.creating()},
	}
	if old != nil {
		if old.State.Waiting != nil && old.LastTerminationState.Terminated != nil {
			// It ended, waits to be started again, and has been removed meanwhile.
			waiting := s.State
			s = *old.DeepCopy()
			s.State = waiting
		}
		s.RestartCount = old.RestartCount
		s.LastTerminationState = *old.LastTerminationState.DeepCopy()
		switch {
		case r.Facts.AllContainersRestarting && old.State.Waiting != nil:
			if old.State.Waiting.Reason == reason.RestartingAllContainers {
				s.State.Waiting = old.State.Waiting.DeepCopy()
			}
		case r.Facts.AllContainersRestarting:
			s.State.Waiting = &v1.ContainerStateWaiting{Reason: reason.RestartingAllContainers, Message: messageRemovedForRestart}
			s.LastTerminationState.Terminated = removedForRestart()
			s.RestartCount++
			return s
		case old.State.Running != nil && s.LastTerminationState.Terminated == nil:
			// It ran and is gone: that counts as an end, or the pod would fall back to Pending.
			s.LastTerminationState.Terminated = lost(messageLostWhileRunning)
			if r.Pod.DeletionTimestamp == nil {
				s.RestartCount++
			}
		case old.State.Waiting != nil && r.Facts.Lifecycle != Syncing && r.Pod.DeletionTimestamp == nil:
			// A kubelet takes a pod that ends without having been deleted (a static one, one that is
			// evicted) for one whose containers are to start, and remembers why this one did not.
			s.State.Waiting = old.State.Waiting.DeepCopy()
		}
	}
	if kind == pod.Init && r.initDone(c) {
		s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason: ReasonCompleted, Message: messageInferredCompletion,
		}}
	}
	return s
}

// removedForRestart is the end of a container that was removed to restart all.
func removedForRestart() *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{ExitCode: exitCodeUnknown, Reason: reason.RestartingAllContainers, Message: messageRemovedForRestart}
}

// waiting overlays why a container that should run does not. podworker gives a reason
// only for containers it wants to start. An init container that succeeded is not one,
// unless it is gone and has to run once more in a new sandbox.
func (r *renderer) waiting(kind pod.ContainerKind, c *v1.Container, facts ContainerFacts, s *v1.ContainerStatus) {
	if r.Facts.Lifecycle != Syncing || r.Pod.DeletionTimestamp != nil || s.State.Running != nil {
		return
	}
	if kind == pod.Init {
		newest := r.rec.newest(c.Name)
		if r.initDone(c) || (newest != nil && newest.exited() && newest.GetExitCode() == 0) {
			return
		}
	}
	replaced := r.replaced(c.Name, s.State.Terminated)
	if end := s.State.Terminated; end != nil && !replaced && !restart.MayRestartAll(r.Pod) && !restartable(r.Pod, c, end) {
		return // it will not run again: podworker's word is from before its end
	}
	wait := explain(r.Pod, c, facts)
	if wait == nil && replaced {
		wait = r.creating()
	}
	if wait == nil {
		return
	}
	switch {
	case wait.Reason == reason.RestartingAllContainers:
		s.LastTerminationState.Terminated, wait.Message = removedForRestart(), messageRemovedForRestart // it is about to be
	case s.State.Terminated != nil:
		s.LastTerminationState = s.State
	}
	s.State = v1.ContainerState{Waiting: wait}
}

// replaced reports whether that was the end of an instance that another takes the place
// of.
func (r *renderer) replaced(container string, end *v1.ContainerStateTerminated) bool {
	id := r.Facts.Containers[container].Replaced
	return id != "" && end != nil && end.ContainerID == r.containerID(id)
}

// explain puts podworker's facts into the kubelet's words, nil when there are none.
func explain(p *v1.Pod, c *v1.Container, facts ContainerFacts) *v1.ContainerStateWaiting {
	switch b := facts.Backoff; {
	case b != nil && b.Kind == BackoffPull:
		lastError := b.LastError
		if lastError == "" && facts.Waiting != nil {
			lastError = facts.Waiting.Reason + ": " + facts.Waiting.Message
		}
		return &v1.ContainerStateWaiting{Reason: reason.ImagePullBackOff, Message: PullBackoffMessage(c.Image, lastError)}
	case b != nil:
		return &v1.ContainerStateWaiting{Reason: reason.CrashLoopBackOff, Message: BackoffMessage(p, c.Name, b.Delay)}
	case facts.Waiting != nil:
		return &v1.ContainerStateWaiting{Reason: facts.Waiting.Reason, Message: facts.Waiting.Message}
	}
	return nil
}

// illegal reports whether the new status takes back that a container ended for good;
// the API server refuses that.
func (r *renderer) illegal(kind pod.ContainerKind, c *v1.Container, old, s *v1.ContainerStatus) bool {
	end := old.State.Terminated
	return end != nil && s.State.Terminated == nil &&
		kind != pod.Sidecar && kind != pod.Ephemeral &&
		!restart.MayRestartAll(r.Pod) &&
		r.Pod.Spec.RestartPolicy != v1.RestartPolicyAlways && r.Pod.Spec.RestartPolicy != "" &&
		!restart.Restartable(r.Pod, c, restart.Exit{Code: end.ExitCode})
}

// probed sets started and ready.
func (r *renderer) probed(kind pod.ContainerKind, c *v1.Container, old, s *v1.ContainerStatus) {
	s.Ready, s.Started = false, nil
	if kind == pod.Ephemeral {
		return
	}
	same := old != nil && old.ContainerID == s.ContainerID
	verdict := r.Probes[bareID(s.ContainerID)]
	started := s.State.Running != nil
	if started && c.StartupProbe != nil {
		switch verdict.Startup {
		case ProbeSuccess:
		case ProbeFailure:
			started = false
		default:
			started = same && old.Started != nil && *old.Started
		}
	}
	s.Started = &started
	if kind == pod.Init {
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		return
	}
	s.Ready = started
	if started && c.ReadinessProbe != nil {
		switch verdict.Readiness {
		case ProbeSuccess:
		case ProbeFailure:
			s.Ready = false
		default:
			s.Ready = same && old.Ready
		}
	}
}

// initDone reports whether an init container that is gone from the runtime must have
// succeeded: a regular container exists in the current sandbox.
func (r *renderer) initDone(c *v1.Container) bool {
	return r.rec.newest(c.Name) == nil && !r.Facts.Containers[c.Name].Unstarted && r.rec.activeRegular(r.Pod)
}

// lostBefore reports whether the runtime has lost track of the instance and the
// previous status has it as lost already: that status then holds more than the record.
func (i *instance) lostBefore(old *v1.ContainerStatus, id string) bool {
	return i.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN && old != nil && old.ContainerID == id
}

func findStatus(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
