package step

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// terminating: everything is stopped, nothing is started.
func (p *planner) terminating() {
	p.shrink()
	p.exceeded()
	p.abort(forTheLiving...)
	if !p.in.Observed.Known {
		p.wait("pleg", "observe", "what the runtime has of this pod is not known yet")
		return
	}
	if p.calledFinished() && len(p.f.Kills) == 0 && p.aliveContainers() && !p.in.Observed.Current {
		p.refresh() // whoever said so may have seen them end before this record did
		return
	}
	t := p.f.Termination
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
	if stopped && !p.flyingKind(Stop, PreStop) {
		p.f.Kills = map[string]Kill{}
		p.f.State = Terminated
	}
}

// calledFinished tells whether the pod ends because the API server has it as over.
func (p *planner) calledFinished() bool {
	return p.f.Termination.Cause == Finished && p.in.Desired != nil && pod.IsTerminalPhase(p.in.Desired.Pod.Status.Phase)
}

// abort cancels what is under way of these kinds.
func (p *planner) abort(kinds ...Kind) {
	for _, key := range slices.Sorted(maps.Keys(p.in.Flights)) {
		if slices.Contains(kinds, p.in.Flights[key].Action.Kind) {
			p.cancel(key)
		}
	}
}

// stopSandboxes stops every sandbox once; true when all are.
func (p *planner) stopSandboxes() bool {
	all := true
	for _, s := range p.in.Observed.Sandboxes {
		if p.f.Stopped[s.ID] {
			continue
		}
		all = false
		a := Action{Kind: StopSandbox, ID: s.ID}
		if f, failed := p.f.Failures[a.Key()]; p.held(a.Key()) && failed {
			p.waitFor("runtime", "stop-sandbox", f.Message, f.Retry)
			continue
		}
		if !p.flying(a.Key()) {
			p.start(a)
		}
		p.wait("runtime", "stop-sandbox", "")
	}
	return all
}

// kill notes that a container must stop by then. Of two, the earlier holds.
func (p *planner) kill(o *Instance, deadline time.Time, message string, hook bool) {
	k, ok := p.f.Kills[o.ID]
	if !ok {
		k = Kill{Container: o.Name, Message: message, Deadline: deadline, HookDone: !hook || !p.hasHook(o)}
	}
	if deadline.Before(k.Deadline) {
		k.Deadline = deadline
	}
	p.f.Kills[o.ID] = k
}

func (p *planner) hasHook(o *Instance) bool {
	if p.pod != nil {
		if c, _ := pod.FindContainer(p.pod, o.Name); c != nil {
			return c.Lifecycle != nil && c.Lifecycle.PreStop != nil
		}
	}
	return o.PreStop
}

// carryOut brings every kill one act further: the hook, then the stop, each
// within what is left of the grace; sidecars stop in their turn.
func (p *planner) carryOut() {
	for _, id := range slices.Sorted(maps.Keys(p.f.Kills)) {
		o := p.instanceByID(id)
		if o == nil || !p.live(o) {
			p.cancel(Action{Kind: PreStop, ID: id}.Key()) // what it prepares for has come
			continue
		}
		k := p.f.Kills[id]
		left := k.Deadline.Sub(p.in.Now)
		if k.HookDone || p.hook(id, &k, left) {
			p.stop(o, &k, left)
		}
		p.f.Kills[id] = k
	}
}

// hook runs the preStop hook; true when the stop need not wait for it any longer.
// A hook that outlasts the grace goes on while the container has its signal: the
// container's end is the hook's.
func (p *planner) hook(id string, k *Kill, left time.Duration) bool {
	a := Action{Kind: PreStop, ID: id, Container: k.Container, Grace: left, Message: k.Message}
	_, under := p.in.Flights[a.Key()]
	switch {
	case left <= 0:
		k.HookDone = true
		return true
	case under:
		p.wake(k.Deadline)
	default:
		a.Tell, k.Told = true, true
		p.start(a)
		p.wake(k.Deadline)
	}
	return false
}

func (p *planner) stop(o *Instance, k *Kill, left time.Duration) {
	a := Action{Kind: Stop, ID: o.ID, Container: k.Container, Grace: max(left, minStopGrace), Message: k.Message}
	if f, ok := p.in.Flights[a.Key()]; ok {
		// Under way: only a shorter grace is worth another call.
		ends, now := f.Since.Add(f.Action.Grace), p.in.Now.Add(a.Grace)
		if !f.Cancelled && now.Add(graceStep).Before(ends) {
			p.start(a)
		}
		return
	}
	if left > 0 && !p.turn(o) {
		p.wake(k.Deadline)
		return
	}
	if p.held(a.Key()) {
		f := p.f.Failures[a.Key()]
		p.waitFor("runtime", "stop", f.Message, f.Retry)
		return
	}
	a.Tell, k.Told = !k.Told, true
	p.start(a)
}

// turn tells whether a container may be stopped now: where all of a pod are,
// sidecars stop after all regular containers and after the sidecars listed
// behind them (KEP-753).
func (p *planner) turn(o *Instance) bool {
	if p.pod == nil || p.f.State != Terminating && !p.clearing {
		return true
	}
	at := sidecarIndex(p.pod, o.Name)
	if at < 0 {
		return true
	}
	for i := range p.in.Observed.Containers {
		other := &p.in.Observed.Containers[i]
		if other.ID == o.ID || !p.live(other) {
			continue
		}
		if n := sidecarIndex(p.pod, other.Name); n < 0 || n > at {
			return false
		}
	}
	return true
}

// sidecarIndex is the place of a sidecar among the init containers, -1 for any
// other container.
func sidecarIndex(p *v1.Pod, name string) int {
	return slices.IndexFunc(p.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && pod.IsSidecar(&c) })
}

// live tells whether an instance runs, or may run.
func (p *planner) live(o *Instance) bool {
	return (o.State == Running || o.State == Unknown) && !p.f.Dead[o.ID]
}

// running tells whether the instance of that ID is live.
func (p *planner) running(id string) bool {
	o := p.instanceByID(id)
	return o != nil && p.live(o)
}

func (p *planner) instanceByID(id string) *Instance {
	for i := range p.in.Observed.Containers {
		if p.in.Observed.Containers[i].ID == id {
			return &p.in.Observed.Containers[i]
		}
	}
	return nil
}

func (p *planner) aliveContainers() bool {
	for i := range p.in.Observed.Containers {
		if p.live(&p.in.Observed.Containers[i]) {
			return true
		}
	}
	return false
}

// alive tells whether anything of the pod runs.
func (p *planner) alive() bool {
	for _, s := range p.in.Observed.Sandboxes {
		if s.Ready && !p.f.Stopped[s.ID] {
			return true
		}
	}
	return p.aliveContainers()
}

// refresh asks for a record that is newer than what this process created.
func (p *planner) refresh() {
	p.plan.Refresh = true
	message := p.in.Observed.RefreshError
	if message == "" {
		message = "what the runtime has is read again"
	}
	p.wait("pleg", "observe", message)
}

// remove removes something dead.
func (p *planner) remove(a Action) {
	if !p.flying(a.Key()) && !p.held(a.Key()) {
		p.start(a)
	}
}
