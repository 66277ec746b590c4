// SPDX-License-Identifier: Apache-2.0

package step

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
)

// planner is one call of Step: the life of the pod, state by state. It stands on layers
// of which each uses only those it embeds: sandboxes, resizes, containers, images,
// stops, learning, agenda, and view, which answers questions and changes nothing.
type planner struct{ sandboxes }

// pending: nothing was decided about the pod yet.
func (p *planner) pending() {
	desired := p.in.Desired
	switch {
	case !p.in.Observed.Known:
		p.wait("pleg", "observe", "what the runtime has of this pod is not known yet")
		return
	case desired == nil:
		p.unlisted()
		return
	case desired.Pod.DeletionTimestamp != nil:
		p.end(Deleted, nil)
		return
	case pod.IsTerminalPhase(desired.Pod.Status.Phase):
		// It ended in an earlier life of this node; it is never run again.
		p.end(Finished, nil)
		return
	case p.in.Holder != "":
		p.wait("podworker", "predecessor", "pod "+string(p.in.Holder)+" of the same name has not gone yet")
		return
	}
	p.f.Begun = desired.Begun
	alive := p.alive()
	if p.in.Shutdown.Active && !alive && !p.flying(Action{Kind: Admit}.Key()) {
		p.refuse()
		return
	}
	p.admit(alive)
}

// refuse turns a pod away from a node that is going down. A static pod belongs to
// the node: it waits for it.
func (p *planner) refuse() {
	if pod.IsStatic(p.pod) {
		p.wait("podworker", "shutdown", nodeGoing)
		return
	}
	p.f.State = Rejected
	p.f.Rejected = &Rejection{At: p.in.Now, Reason: reasonRefused, Message: refusedMessage}
	p.event(Event{Warning: true, Reason: reasonRefused, Message: refusedMessage})
}

// unlisted: config does not list a pod that was never decided about.
func (p *planner) unlisted() {
	switch {
	case !p.in.Config.SourcesComplete:
		p.wait("config", "sources", "not every source of pods has been read")
	case p.pod != nil:
		p.end(Removed, nil) // it was listed, and may run: it has its grace
	default:
		p.end(Orphan, nil)
	}
}

func (p *planner) admit(running bool) {
	key := Action{Kind: Admit}.Key()
	switch {
	case p.flying(key):
	case p.backedOff(key):
		p.wait("resource", "admit", p.f.Failures[key].Message)
		p.plan.Wait.Retry = p.f.Failures[key].Retry
		return
	case p.f.NotYet != nil && !p.in.ResourcesChanged.After(p.f.NotYet.At) && p.in.Now.Before(p.f.NotYet.At.Add(notYetRetry)):
		p.wake(p.f.NotYet.At.Add(notYetRetry))
		p.wait("resource", "admit", p.f.NotYet.String())
		if n := p.f.NotYet; n.Reason != "" {
			p.remind("admit", n.String(), Event{Warning: true, Reason: n.Reason, Message: n.Message})
		}
		return
	default:
		p.start(Action{Kind: Admit, Running: running})
	}
	p.wait("resource", "admit", "asked for admission")
}

// terminating: everything is stopped, nothing is started.
func (p *planner) terminating() {
	p.shrink()
	p.exceeded()
	p.abort(forTheLiving...)
	t := p.f.Termination
	if !p.in.Observed.Known {
		t.Unseen = t.Unseen || len(p.f.Kills) == 0 && t.Cause != NodeDown
		p.wait("pleg", "observe", "what the runtime has of this pod is not known yet")
		return
	}
	if t.Unseen {
		t.Unseen, t.Deadline = false, later(t.Deadline, p.in.Now.Add(t.Grace))
	}
	if p.calledFinished() && len(p.f.Kills) == 0 && p.aliveContainers() && !p.in.Observed.Current {
		p.refresh() // the reporter may have seen them end before this record did
		return
	}
	for i := range p.in.Observed.Containers {
		if o := &p.in.Observed.Containers[i]; p.live(o) {
			p.kill(o, t.Deadline, "", true)
		}
	}
	p.carryOut()
	if p.aliveContainers() || p.flyingKind(RunSandbox, Start, Stop, PreStop) {
		p.waitFor("runtime", "stop", "containers are being stopped", t.Deadline)
	}
	if p.aliveContainers() {
		return
	}
	if p.flyingKind(RunSandbox, Start) {
		return // what they leave behind has to be seen first
	}
	if !p.in.Observed.Verified {
		// A container that was made a moment ago may not be in the record; with
		// its sandbox it would die without grace.
		p.refresh()
		return
	}
	stopped := p.stopSandboxes()
	if stopped && p.unprepared() && !p.flyingKind(Stop, PreStop, Withdraw, Release) {
		p.f.Kills = map[string]Kill{}
		p.f.State = Terminated
		p.f.WithdrawAccepted, p.f.ReleaseAccepted = false, false
	}
}

// unprepared has what a pod with resource claims holds given back before the pod is over:
// the API server may give the devices to another then (as a kubelet's SyncTerminatingPod).
// Of one that was evicted for want of something the volumes go before that, as in terminated,
// for as long as resource waits for them.
func (p *planner) unprepared() bool {
	switch {
	case p.pod == nil, len(p.pod.Spec.ResourceClaims) == 0 && p.pod.Status.ExtendedResourceClaimStatus == nil:
		return true
	case p.undecided():
	case !p.f.ReleaseAccepted && p.forShortage() && p.awaited() && !p.withdrawn():
	case !p.f.ReleaseAccepted:
		p.ask(Release, "resource", "release")
	case !p.in.Resources.Gone:
		p.wait("resource", "release", p.in.Resources.Error)
	default:
		return true
	}
	return false
}

// resurfaced ends a pod once more that is over and has something running again: the
// runtime carries a call out when it likes, also one that was given up or whose caller
// was killed. What was given back before is given back again.
func (p *planner) resurfaced() bool {
	if !p.in.Observed.Known || !p.alive() {
		return false
	}
	p.f.State = Terminating
	return true
}

// terminated: nothing runs; what is held is given back.
func (p *planner) terminated() {
	if p.resurfaced() {
		return
	}
	if p.undecided() {
		return
	}
	withdrawn := p.withdrawn()
	switch {
	case !p.f.ReleaseAccepted && p.forShortage() && !withdrawn:
		// When the pod is released, resource looks whether the node is short of something
		// still, and evicts another: what this one has on the disk must be gone by then.
	case !p.f.ReleaseAccepted:
		p.ask(Release, "resource", "release")
	case !p.in.Resources.Gone:
		p.wait("resource", "release", p.in.Resources.Error)
		if p.in.Resources.Error != "" { // it may hold what the runtime has and the record does not show
			p.lookAgain()
		}
	}
	if withdrawn && p.in.Resources.Gone && p.f.ReleaseAccepted {
		p.f.State = Released
	}
}

// forShortage reports whether the pod was evicted because the node is short of something.
func (p *planner) forShortage() bool {
	t := p.f.Termination
	return t != nil && t.Cause == Evicted && t.Outcome != nil && t.Outcome.Kind == "Evicted"
}

// released: nothing is held. As long as config lists the pod its dead
// containers stay, for their logs and exit codes. One that was ended because
// config did not list it, and is listed again, starts over: a static pod whose
// manifest came back has the UID it had. So does a static pod when the node that
// went down is up, or has stayed.
func (p *planner) released() {
	if p.resurfaced() {
		return
	}
	p.recall()
	cause := p.f.Termination.Cause
	again := cause == Removed || cause == Orphan || p.rewritten() ||
		cause == NodeDown && !p.in.Shutdown.Active && pod.IsStatic(p.pod)
	switch {
	case p.in.Desired == nil && !p.in.Config.PodsComplete:
		p.wait("config", "sources", "not every source of pods has been read")
	case p.in.Desired == nil:
		p.depart()
	case again && p.in.Desired.Pod.DeletionTimestamp == nil:
		p.renew()
	default:
		p.sweep()
	}
}

// rejected: a pod of the API server only waits for config to drop it.
func (p *planner) rejected() {
	p.recall()
	switch {
	case p.quell():
	case p.in.Desired == nil && p.in.Config.PodsComplete, p.rewritten():
		p.depart()
	case p.in.Desired != nil && pod.IsStatic(p.in.Desired.Pod) && p.in.Desired.Pod.DeletionTimestamp == nil:
		p.readmit()
	}
}

// readmit asks again for a static pod that was refused. A controller makes a new
// pod in place of a refused one; none does that for a static pod, which would
// stay away for as long as its manifest is not touched
// (kubernetes/kubernetes#138391).
func (p *planner) readmit() {
	r := p.f.Rejected
	ask := Action{Kind: Admit}
	switch {
	case p.flying(ask.Key()), p.backedOff(ask.Key()):
		return
	case p.in.Shutdown.Active:
		p.wait("podworker", "shutdown", nodeGoing)
		return
	case p.in.Holder != "":
		p.wait("podworker", "predecessor", "pod "+string(p.in.Holder)+" of the same name has not gone yet")
		return
	}
	last := r.At
	if r.Asked.After(last) {
		last = r.Asked
	}
	due := last.Add(readmissions.After(r.Again + 1))
	if soon := last.Add(readmissions.Least); p.in.ResourcesChanged.After(last) && soon.Before(due) {
		due = soon
	}
	if p.in.Now.Before(due) {
		p.wake(due)
		p.waitFor("resource", "admit", r.Reason+": "+r.Message, due)
		return
	}
	p.start(ask)
}

// depart removes what is left of a pod, and forgets it.
func (p *planner) depart() {
	if !p.in.Observed.Known {
		p.wait("pleg", "observe", "what the runtime has of this pod is not known")
		return
	}
	// A pod that is listed may start again when this is done, and the range of user IDs, which
	// is given back with the pod's folder, may be scarce: both are removed at once.
	var until time.Time
	if p.in.Desired == nil && (p.pod == nil || ptr.Deref(p.pod.Spec.HostUsers, true)) {
		until = p.f.departs(p.in.Now).Add(calmAtMost)
	}
	var kept time.Time
	if p.in.Desired == nil && p.pod != nil && pod.IsStatic(p.pod) && len(p.in.Observed.Containers) > 0 {
		kept = p.f.departs(p.in.Now).Add(endReadWithin)
		p.wake(kept)
	}
	for _, c := range p.in.Observed.Containers {
		a := Action{Kind: Remove, ID: c.ID, Container: c.Name, CalmUntil: until}
		switch {
		case p.in.Excess[c.ID]:
			a.CalmUntil = time.Time{}
		case p.in.Now.Before(kept):
			continue
		}
		p.discard(a)
	}
	if len(p.in.Observed.Containers) == 0 {
		for _, s := range p.in.Observed.Sandboxes {
			p.discard(Action{Kind: RemoveSandbox, ID: s.ID, CalmUntil: until})
		}
	}
	if len(p.in.Observed.Containers)+len(p.in.Observed.Sandboxes) > 0 {
		p.wait("runtime", "remove", p.unremoved(""))
		return
	}
	p.leave()
}

// calmAtMost is how long what is left of a pod waits for a calm node at the most: the period
// in which a kubelet collects containers.
const calmAtMost = time.Minute

// discard removes something dead, at once if the removal that is under way waits for a
// calm node and this one does not.
func (p *planner) discard(a Action) {
	if !a.WhenCalm() && p.in.Flights[a.Key()].Action.WhenCalm() {
		p.cancel(a.Key())
	}
	p.remove(a)
}

// recall cancels removals that wait for a calm node, once the pod is listed again.
func (p *planner) recall() {
	if p.in.Desired == nil {
		return
	}
	p.f.Departing = time.Time{}
	for key, f := range p.in.Flights {
		if f.Action.WhenCalm() {
			p.cancel(key)
		}
	}
}

// leave cleans the disk and forgets the pod.
func (p *planner) leave() {
	if p.flyingAny() {
		p.wait("runtime", "remove", "")
		return
	}
	if !p.f.Cleaned {
		p.ask(Clean, "podworker", "clean")
		return
	}
	p.plan.Forget = true
}

// renew takes a pod up again that has ended. Its restart counts and back-offs go
// on, and its dead containers stay as the former instances they are.
func (p *planner) renew() {
	if p.flyingAny() {
		p.wait("runtime", "remove", "")
		return
	}
	again := Facts{State: Pending, Containers: p.f.Containers, Pulls: p.f.Pulls}
	again.Stopped, again.Dead, again.Removed, again.Told = p.f.Stopped, p.f.Dead, p.f.Removed, p.f.Told
	for name, c := range again.Containers {
		if c.Last != nil {
			c.Replaced = c.Last.ID
		}
		again.Containers[name] = c
	}
	p.f = again.clone()
	p.plan.Again = true
}
