package step

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// planner is one call of Step.
type planner struct {
	in    Input
	f     Facts
	pod   *v1.Pod // desired, else accepted, else what the containers tell
	plan  Plan
	waits map[string]ContainerWait
	// gone are the flights this plan cancels.
	gone map[Key]bool
	// clearing: all containers make room for another sandbox.
	clearing bool
}

// Step plans. The same input gives the same plan.
func Step(in Input) Plan {
	p := &planner{in: in, f: in.Facts.clone(), waits: map[string]ContainerWait{}, gone: map[Key]bool{}}
	p.pod = in.pod()
	p.rebooted()
	p.trust()
	p.interrupted()
	p.learn()
	for {
		before := p.f.State
		p.state()
		if p.f.State == before || p.plan.Again {
			break
		}
		p.waits = map[string]ContainerWait{}
		p.plan.Wait = nil
	}
	p.finishWaits()
	p.plan.Facts = p.f
	return p.plan
}

// rebooted ends the back-offs of a former boot: what ended with the machine did not
// fail, and what did may be well now. A kubelet remembers none either.
func (p *planner) rebooted() {
	if was := p.f.Boot; was != "" && was != p.in.Boot {
		for name, c := range p.f.Containers {
			c.Crash, c.CrashKey = restart.Backoff{}, ""
			p.f.Containers[name] = c
		}
		p.f.Pulls = nil
	}
	p.f.Boot = p.in.Boot
}

// pod is the specification a pod is handled by; nil for an orphan.
func (in *Input) pod() *v1.Pod {
	if in.Desired != nil {
		return in.Desired.Pod
	}
	return in.Accepted
}

func (p *planner) state() {
	if p.f.StartedAt.IsZero() {
		p.f.StartedAt = p.in.Now
		if p.pod != nil && p.pod.Status.StartTime != nil {
			p.f.StartedAt = p.pod.Status.StartTime.Time
		}
	}
	switch p.f.State {
	case Pending:
		p.pending()
	case Syncing:
		p.syncing()
	case Terminating:
		p.terminating()
	case Terminated:
		p.terminated()
	case Released:
		p.released()
	case Rejected:
		p.rejected()
	}
}

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
	default:
		p.end(Orphan, nil)
	}
}

func (p *planner) admit(running bool) {
	key := Action{Kind: Admit}.Key()
	switch {
	case p.flying(key):
	case p.held(key):
		p.wait("resource", "admit", p.f.Failures[key].Message)
		p.plan.Wait.Retry = p.f.Failures[key].Retry
		return
	case p.f.NotYet != nil && !p.in.ResourcesChanged.After(p.f.NotYet.At) && p.in.Now.Before(p.f.NotYet.At.Add(notYetRetry)):
		p.wake(p.f.NotYet.At.Add(notYetRetry))
		p.wait("resource", "admit", p.f.NotYet.Reason+": "+p.f.NotYet.Message)
		return
	default:
		p.start(Action{Kind: Admit, Running: running})
	}
	p.wait("resource", "admit", "asked for admission")
}

// terminated: nothing runs; what is held is given back.
func (p *planner) terminated() {
	// A cancelled call may still be carried out: the opposite waits for its end.
	if p.flyingKind(Declare, Admit) {
		p.wait("podworker", "cancel", "calls under way are being cancelled")
		return
	}
	switch {
	case !p.f.Withdrawn:
		p.ask(Withdraw, "volume", "unmount")
	case !p.in.Volumes.Gone:
		p.wait("volume", "unmount", p.in.Volumes.Waiting)
	}
	switch {
	case !p.f.Released:
		p.ask(Release, "resource", "release")
	case !p.in.Resources.Gone:
		p.wait("resource", "release", p.in.Resources.Error)
	}
	if p.in.Volumes.Gone && p.f.Withdrawn && p.in.Resources.Gone && p.f.Released {
		p.f.State = Released
	}
}

// ask starts an idempotent command to a neighbour unless it is held back.
func (p *planner) ask(kind Kind, owner, name string) {
	key := Action{Kind: kind}.Key()
	message := ""
	if !p.flying(key) {
		if p.held(key) {
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

// released: nothing is held. As long as config lists the pod its dead
// containers stay, for their logs and exit codes. One that was ended because
// config did not list it, and is listed again, begins anew: a static pod whose
// manifest came back has the UID it had. So does a static pod when the node that
// went down is up, or has stayed.
func (p *planner) released() {
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
	switch {
	case p.in.Desired == nil && p.in.Config.PodsComplete, p.rewritten():
		p.depart()
	case p.in.Desired != nil && pod.IsStatic(p.in.Desired.Pod) && p.in.Desired.Pod.DeletionTimestamp == nil:
		p.appeal()
	}
}

// appeal asks again for a static pod that was refused. A controller makes a new
// pod in place of a refused one; nobody does that for a static pod, which would
// stay away for as long as its manifest is not touched
// (kubernetes/kubernetes#138391).
func (p *planner) appeal() {
	r := p.f.Rejected
	ask := Action{Kind: Admit}
	switch {
	case p.flying(ask.Key()), p.held(ask.Key()):
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
	due := last.Add(min(appealRetry<<min(r.Again, 8), appealRetryMost))
	if soon := last.Add(appealRetry); p.in.ResourcesChanged.After(last) && soon.Before(due) {
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
	for _, c := range p.in.Observed.Containers {
		p.remove(Action{Kind: Remove, ID: c.ID, Container: c.Name})
	}
	if len(p.in.Observed.Containers) == 0 {
		for _, s := range p.in.Observed.Sandboxes {
			p.remove(Action{Kind: RemoveSandbox, ID: s.ID})
		}
	}
	if len(p.in.Observed.Containers)+len(p.in.Observed.Sandboxes) > 0 {
		p.wait("runtime", "remove", "")
		return
	}
	p.leave()
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

// trust takes out of the record what this process has removed since, and lets a
// newer record correct what was believed of the rest.
func (p *planner) trust() {
	o := &p.in.Observed
	if o.Current {
		for _, c := range o.Containers {
			if (c.State == Running || c.State == Unknown) && p.f.Dead[c.ID] {
				p.contradict(Action{Kind: Stop, ID: c.ID})
			}
			if p.f.Gone[c.ID] {
				p.contradict(Action{Kind: Remove, ID: c.ID})
			}
		}
		for _, s := range o.Sandboxes {
			if s.Ready && p.f.Stopped[s.ID] {
				p.contradict(Action{Kind: StopSandbox, ID: s.ID})
				delete(p.f.Stopped, s.ID)
			}
			if p.f.Gone[s.ID] {
				p.contradict(Action{Kind: RemoveSandbox, ID: s.ID})
			}
		}
		p.f.Gone, p.f.Dead = map[string]bool{}, map[string]bool{}
		return
	}
	o.Containers = slices.DeleteFunc(slices.Clone(o.Containers), func(c Instance) bool { return p.f.Gone[c.ID] })
	o.Sandboxes = slices.DeleteFunc(slices.Clone(o.Sandboxes), func(s Sandbox) bool { return p.f.Gone[s.ID] })
}

// contradict counts an act as failed that the runtime reported done, and a
// newer record says was not.
func (p *planner) contradict(a Action) {
	fail(&p.f, p.in.UID, a, Failed{Reason: "RuntimeError", Message: "the runtime reported success, and nothing changed"}, p.in.Now)
}

// learn folds what is observed into the facts.
func (p *planner) learn() {
	seen := map[string]bool{}
	for i := range p.in.Observed.Containers { // newest first
		o := &p.in.Observed.Containers[i]
		if o.State == Created || seen[o.Name] {
			continue
		}
		seen[o.Name] = true
		c := p.f.Containers[o.Name]
		if o.RestartCount+1 < c.Instances {
			continue // an older one; the newest is gone
		}
		last := &Last{ID: o.ID, Sandbox: o.Sandbox}
		if o.State == Exited {
			last.Exit = &Exit{Code: o.ExitCode, At: o.FinishedAt}
		}
		c.Instances, c.Last = o.RestartCount+1, last
		p.f.Containers[o.Name] = c
	}
	p.lost()
	for id := range p.f.Kills {
		if !p.running(id) && p.in.Observed.Known && !p.flying(Action{Kind: Stop, ID: id}.Key()) && !p.flying(Action{Kind: PreStop, ID: id}.Key()) {
			delete(p.f.Kills, id)
		}
	}
}

// lost notes the end of instances that a record newer than they are does not
// list, or lists as never started: the runtime lost them, or that it had started
// them, and with them how they ended. A machine that loses its power leaves a
// runtime whose files end before its memory did.
func (p *planner) lost() {
	if !p.in.Observed.Known || !p.in.Observed.Verified || p.in.Observed.Error != "" {
		return
	}
	for name, c := range p.f.Containers {
		if c.Last == nil || c.Last.Exit != nil || p.flying(Action{Kind: Start, Container: name}.Key()) {
			continue
		}
		if o := p.instanceByID(c.Last.ID); o == nil || o.State == Created {
			last := *c.Last
			last.Exit = &Exit{Code: lostExitCode, At: p.in.Now}
			c.Last = &last
			p.f.Containers[name] = c
		}
	}
}

func (p *planner) start(a Action) { p.plan.Start = append(p.plan.Start, a) }

func (p *planner) cancel(key Key) {
	if f, ok := p.in.Flights[key]; ok && !f.Cancelled && !p.gone[key] {
		p.gone[key] = true
		p.plan.Cancel = append(p.plan.Cancel, key)
	}
}

// flying tells whether an action is under way, or being cancelled, or planned
// just now.
func (p *planner) flying(key Key) bool {
	if _, ok := p.in.Flights[key]; ok {
		return true
	}
	for _, a := range p.plan.Start {
		if a.Key() == key {
			return true
		}
	}
	return false
}

// queued tells whether an action under way waits for its turn.
func (p *planner) queued(key Key) bool { return p.in.Flights[key].Queued }

func (p *planner) flyingAny() bool { return len(p.in.Flights)+len(p.plan.Start) > 0 }

// flyingKind tells whether an action of the kind is under way.
func (p *planner) flyingKind(kinds ...Kind) bool {
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

// held tells whether an action has to wait because it failed.
func (p *planner) held(key Key) bool {
	f, ok := p.f.Failures[key]
	if !ok || !p.in.Now.Before(f.Retry) {
		return false
	}
	if f.Reason == configError && p.in.ObjectsChanged.After(f.At) {
		return false
	}
	p.wake(f.Retry)
	return true
}

func (p *planner) wake(at time.Time) {
	if at.IsZero() || !at.After(p.in.Now) {
		return
	}
	if p.plan.WakeAt.IsZero() || at.Before(p.plan.WakeAt) {
		p.plan.WakeAt = at
	}
}
