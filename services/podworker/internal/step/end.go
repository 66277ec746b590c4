package step

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Reasons of evictions that have a kind of verdict of their own.
const (
	reasonPreempting = "Preempting"
	reasonShutdown   = "Terminated"
	reasonDeadline   = "DeadlineExceeded"
	reasonRefused    = "NodeShutdown"
	shutdownMessage  = "Pod was terminated in response to imminent node shutdown."
	refusedMessage   = "Pod was rejected as the node is shutting down."
	nodeGoing        = "the node is shutting down"
	deadlineMessage  = "Pod was active on the node longer than the specified deadline"
)

// forTheLiving are the actions that a pod which ends has no use for.
var forTheLiving = []Kind{Admit, Declare, Pull, Look, RunSandbox, Start, Resize, Update, Settle}

// mustEnd begins the termination if something asks for it.
func (p *planner) mustEnd() bool {
	desired := p.in.Desired
	switch {
	case desired == nil && p.in.Config.PodsComplete, p.rewritten():
		p.end(Removed, nil)
	case p.pod == nil:
		// Syncing with no specification anywhere: a journal record that lost its
		// pod. Wait for config.
		return false
	case desired != nil && desired.Pod.DeletionTimestamp != nil:
		p.end(Deleted, nil)
	case p.in.Resources.Eviction != nil:
		p.evict(p.in.Resources.Eviction)
	case desired != nil && pod.IsTerminalPhase(desired.Pod.Status.Phase):
		p.end(Finished, nil)
	case p.in.Shutdown.End:
		p.end(NodeDown, p.shutdownVerdict())
	case p.pastDeadline():
		p.event(Event{Reason: reasonDeadline, Message: deadlineMessage})
		p.end(Deadline, &Verdict{Kind: reasonDeadline, Reason: reasonDeadline, Message: deadlineMessage, At: p.in.Now})
	default:
		return false
	}
	return true
}

func (p *planner) evict(e *Eviction) {
	verdict := &Verdict{Kind: "Evicted", Reason: e.Reason, Message: e.Message, Disruption: e.Disruption, At: e.At}
	switch e.Reason {
	case reasonPreempting:
		verdict.Kind = "Preempted"
		p.event(Event{Warning: true, Reason: reasonPreempting, Message: e.Message})
	case reasonShutdown:
		verdict.Kind = "Shutdown"
	}
	p.end(Evicted, verdict)
}

// shutdownVerdict is none for a static pod: it is not over, for it runs again when
// the node does.
func (p *planner) shutdownVerdict() *Verdict {
	if pod.IsStatic(p.pod) {
		return nil
	}
	return &Verdict{Kind: "Shutdown", Reason: reasonShutdown, Message: shutdownMessage, Disruption: true, At: p.in.Now}
}

func (p *planner) pastDeadline() bool {
	seconds := p.pod.Spec.ActiveDeadlineSeconds
	if seconds == nil {
		return false
	}
	at := p.f.StartedAt.Add(time.Duration(*seconds) * time.Second)
	p.wake(at)
	return !p.in.Now.Before(at)
}

// end begins the termination of a pod.
func (p *planner) end(cause Cause, verdict *Verdict) {
	p.f.State = Terminating
	p.f.RestartAll = nil
	// Nothing is begun for a pod that ends, also not what this plan held already.
	p.plan.Start = slices.DeleteFunc(p.plan.Start, func(a Action) bool { return slices.Contains(forTheLiving, a.Kind) })
	p.f.Termination = &Termination{Cause: cause, Started: p.in.Now, Verdict: verdict}
	grace := p.grace()
	p.f.Termination.Grace = grace
	p.f.Termination.Deadline = p.in.Now.Add(grace)
}

// grace is what a pod being terminated gets as things are now.
func (p *planner) grace() time.Duration {
	if p.f.Termination.Cause == Orphan {
		return minPodGrace
	}
	grace := specGrace(p.pod)
	if p.pod != nil && p.pod.DeletionTimestamp != nil && p.pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*p.pod.DeletionGracePeriodSeconds) * time.Second
	}
	if e := p.in.Resources.Eviction; e != nil && p.f.Termination.Cause == Evicted {
		grace = min(grace, e.Grace)
	}
	if p.in.Shutdown.End {
		grace = min(grace, p.in.Shutdown.Grace)
	}
	return max(grace, minPodGrace)
}

// specGrace is terminationGracePeriodSeconds; 30 s where nothing says so.
func specGrace(pod *v1.Pod) time.Duration {
	if pod == nil || pod.Spec.TerminationGracePeriodSeconds == nil {
		return 30 * time.Second
	}
	return time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
}

// containerGrace is what a single container of a pod that stays gets.
func containerGrace(pod *v1.Pod) time.Duration { return max(specGrace(pod), minPodGrace) }

// shrink takes over a shorter grace; a longer one is too late.
func (p *planner) shrink() {
	t := p.f.Termination
	// A pod that ended otherwise may be deleted in the meantime.
	if p.in.Desired != nil && p.in.Desired.Pod.DeletionTimestamp != nil && (t.Cause == Removed || t.Cause == Deadline || t.Cause == Finished) {
		t.Cause = Deleted
	}
	grace := p.grace()
	if grace >= t.Grace {
		return
	}
	t.Grace = grace
	if at := p.in.Now.Add(grace); at.Before(t.Deadline) {
		t.Deadline = at
	}
}

// exceeded tells once that a pod the node ended takes too long to die.
func (p *planner) exceeded() {
	t := p.f.Termination
	if t.Exceeded || (t.Cause != Evicted && t.Cause != NodeDown) {
		return
	}
	limit := max(10*time.Second, t.Grace*3/2)
	at := t.Started.Add(limit)
	p.wake(at)
	if !p.in.Now.Before(at) {
		t.Exceeded = true
		p.event(Event{Warning: true, Reason: "ExceededGracePeriod",
			Message: "Container runtime did not kill the pod within specified grace period."})
	}
}
