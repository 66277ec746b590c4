// SPDX-License-Identifier: Apache-2.0

package step

import (
	"github.com/sextant-node/sextant/pkg/pod"
)

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
	case p.in.Volumes.LimitExceeded != "" && !p.in.Volumes.Ready && !p.aliveContainers():
		p.event(Event{Warning: true, Reason: reasonNoRoom, Message: p.in.Volumes.LimitExceeded})
		p.end(NoRoom, &Outcome{Kind: "Rejected", Reason: reasonNoRoom, Message: p.in.Volumes.LimitExceeded, At: p.in.Now})
	case p.in.Shutdown.End:
		p.end(NodeDown, p.shutdownOutcome())
	case p.pastDeadline():
		p.event(Event{Reason: reasonDeadline, Message: deadlineMessage})
		p.end(Deadline, &Outcome{Kind: reasonDeadline, Reason: reasonDeadline, Message: deadlineMessage, At: p.in.Now})
	default:
		return false
	}
	return true
}

func (p *planner) evict(e *Eviction) {
	outcome := &Outcome{Kind: "Evicted", Reason: e.Reason, Message: e.Message, Disruption: e.Disruption, At: e.At}
	switch e.Reason {
	case reasonPreempting:
		outcome.Kind = "Preempted"
		p.event(Event{Warning: true, Reason: reasonPreempting, Message: e.Message})
	case reasonShutdown:
		outcome.Kind = "Shutdown"
	case reasonUnexpected: // after a boot
		outcome.Kind = "Rejected"
	}
	p.end(Evicted, outcome)
}

func (p *agenda) pastDeadline() bool {
	seconds := p.pod.Spec.ActiveDeadlineSeconds
	if seconds == nil {
		return false
	}
	at := p.f.StartedAt.Add(pod.Seconds(*seconds))
	p.wake(at)
	return !p.in.Now.Before(at)
}
