// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
)

// agenda is the plan so far: what is to be started and cancelled, what is waited for, and
// what is emitted.
type agenda struct {
	view
	plan  Plan
	waits map[string]ContainerWait
	// cancelling are the flights this plan cancels.
	cancelling map[Key]bool
}

func (p *agenda) start(a Action) { p.plan.Start = append(p.plan.Start, a) }

func (p *agenda) cancel(key Key) {
	if f, ok := p.in.Flights[key]; ok && !f.Cancelled && !p.cancelling[key] {
		p.cancelling[key] = true
		p.plan.Cancel = append(p.plan.Cancel, key)
	}
}

// flying reports whether an action is under way, or being cancelled, or planned
// just now.
func (p *agenda) flying(key Key) bool {
	_, under := p.in.Flights[key]
	return under || slices.ContainsFunc(p.plan.Start, func(a Action) bool { return a.Key() == key })
}

// queued reports whether an action under way waits for its turn.
func (p *agenda) queued(key Key) bool { return p.in.Flights[key].Queued }

func (p *agenda) flyingAny() bool { return len(p.in.Flights)+len(p.plan.Start) > 0 }

// flyingKind reports whether an action of the kind is under way.
func (p *agenda) flyingKind(kinds ...Kind) bool {
	for _, k := range kinds {
		for _, f := range p.in.Flights {
			if f.Action.Kind == k {
				return true
			}
		}
		for _, a := range p.plan.Start {
			if a.Kind == k {
				return true
			}
		}
	}
	return false
}

// backedOff reports whether an action has to wait because it failed.
func (p *agenda) backedOff(key Key) bool {
	f, ok := p.f.Failures[key]
	if !ok || !p.in.Now.Before(f.Retry) {
		return false
	}
	retry := f.Retry
	if f.Reason == reason.CreateContainerConfigError && p.in.ObjectsChanged.After(f.At) {
		// What was missing may be there; an object that changes all the time is no reason
		// to try all the time.
		if soon := f.At.Add(retries.After(f.Count)); soon.Before(retry) {
			retry = soon
		}
		if !p.in.Now.Before(retry) {
			return false
		}
	}
	p.wake(retry)
	return true
}

// ask starts an idempotent command to a neighbour unless it is held back.
func (p *agenda) ask(kind Kind, owner, name string) {
	key := Action{Kind: kind}.Key()
	message := ""
	if !p.flying(key) {
		if p.backedOff(key) {
			message = p.f.Failures[key].Message
		} else {
			p.start(Action{Kind: kind})
		}
	}
	p.wait(owner, name, message)
	if f, ok := p.f.Failures[key]; ok && p.plan.Wait.Owner == owner && p.plan.Wait.Step == name {
		p.plan.Wait.Retry = f.Retry
	}
}

func (p *agenda) wake(at time.Time) {
	if at.IsZero() || !at.After(p.in.Now) {
		return
	}
	if p.plan.WakeAt.IsZero() || at.Before(p.plan.WakeAt) {
		p.plan.WakeAt = at
	}
}

// abort cancels what is under way of these kinds.
func (p *agenda) abort(kinds ...Kind) {
	for _, key := range slices.Sorted(maps.Keys(p.in.Flights)) {
		if slices.Contains(kinds, p.in.Flights[key].Action.Kind) {
			p.cancel(key)
		}
	}
}

// undecided reports whether a call is being cancelled that may still be carried out: its
// opposite waits for its end.
func (p *agenda) undecided() bool {
	if !p.flyingKind(Declare, Admit) {
		return false
	}
	p.wait("podworker", "cancel", "calls under way are being cancelled")
	return true
}

// remove removes something dead.
func (p *agenda) remove(a Action) {
	if !p.flying(a.Key()) && !p.backedOff(a.Key()) {
		p.start(a)
	}
}

// refresh asks for a record that is newer than what this process created.
func (p *agenda) refresh() {
	p.plan.Refresh = true
	p.wait("pleg", "observe", cmp.Or(p.in.Observed.RefreshError, "what the runtime has is read again"))
}

// lookAgain asks for another record from time to time.
func (p *agenda) lookAgain() {
	if due := p.f.LookedAgain.Add(lookAgain); p.in.Now.Before(due) {
		p.wake(due)
		return
	}
	p.f.LookedAgain = p.in.Now
	p.plan.Refresh = true
}

// networked reports whether the pod has the network it needs to start anything.
func (p *agenda) networked() bool {
	if p.pod.Spec.HostNetwork || p.in.Network.Ready {
		delete(p.f.Told, "network")
		return true
	}
	p.remind("network", p.in.Network.Message, Event{Warning: true, Reason: "NetworkNotReady",
		Message: fmt.Sprintf("network is not ready: %s", p.in.Network.Message)})
	p.wait("runtime", "network", "network is not ready: "+p.in.Network.Message)
	return false
}

// wait sets what the pod as a whole waits for; the first one said counts.
func (p *agenda) wait(owner, step, message string) {
	if p.plan.Wait == nil {
		p.plan.Wait = &Wait{Owner: owner, Step: step, Message: message}
	}
}

// waitFor is wait with the time of the next try.
func (p *agenda) waitFor(owner, step, message string, retry time.Time) {
	if p.plan.Wait == nil {
		p.plan.Wait = &Wait{Owner: owner, Step: step, Message: message, Retry: retry}
	}
}

// show sets what the status of a container that waits shows; the first reason said counts.
func (p *agenda) show(w ContainerWait) {
	if _, ok := p.waits[w.Container]; !ok {
		p.waits[w.Container] = w
	}
}

func (p *agenda) event(e Event) { p.plan.Events = append(p.plan.Events, e) }

// tell emits an event unless the last one under the same topic was about the
// same thing.
func (p *agenda) tell(topic, about string, e Event) {
	if p.f.Told[topic] == about {
		return
	}
	p.f.Told[topic] = about
	p.event(e)
}

// remind is tell for what may last: it is repeated meanwhile.
func (p *agenda) remind(topic, about string, e Event) {
	again := p.f.ToldAt[topic].Add(pod.EventReminder)
	if p.f.Told[topic] != about || !p.in.Now.Before(again) {
		p.f.Told[topic], p.f.ToldAt[topic] = about, p.in.Now
		p.event(e)
		again = p.in.Now.Add(pod.EventReminder)
	}
	p.wake(again)
}

// forTheLiving are the actions that a pod which ends has no use for.
var forTheLiving = []Kind{Admit, Declare, Pull, Look, RunSandbox, Start, Resize, Update, Settle, Pin}

// end begins the termination of a pod.
func (p *agenda) end(cause Cause, outcome *Outcome) {
	p.f.State = Terminating
	p.f.RestartAll = nil
	// Nothing is begun for a pod that ends, also not what this plan held already.
	p.plan.Start = slices.DeleteFunc(p.plan.Start, func(a Action) bool { return slices.Contains(forTheLiving, a.Kind) })
	p.f.Termination = &Termination{Cause: cause, Started: p.in.Now, Outcome: outcome}
	grace := p.grace()
	p.f.Termination.Grace = grace
	p.f.Termination.Deadline = p.in.Now.Add(grace)
}
