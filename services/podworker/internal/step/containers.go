// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// containers brings the containers of the spec to running.
type containers struct{ images }

// sync sees to every container. active is nil while there is no sandbox: images
// are fetched meanwhile.
func (p *containers) sync(active *Sandbox, all map[string]assessment) {
	if active != nil {
		p.stopStale(active)
	}
	for kind, c := range pod.Containers(p.pod) {
		if (kind == pod.Regular || kind == pod.Ephemeral) && all[c.Name].unread {
			p.refresh()
		}
	}
	p.ephemeral(active, all)
	ready, failed := p.initialize(active, all)
	if failed {
		p.end(Finished, nil)
		return
	}
	if !ready {
		p.wait("pod", "init", "init containers have not finished")
		return
	}
	line := &queue{}
	for i := range p.pod.Spec.Containers {
		c := &p.pod.Spec.Containers[i]
		switch all[c.Name].phase {
		case absent, due:
			p.launch(c, pod.Regular, active, line)
		case up:
			line.busy = line.busy || p.hooked(c)
		}
	}
}

// finished reports whether every regular container ran and none runs again.
func (p *containers) finished(all map[string]assessment) bool {
	for i := range p.pod.Spec.Containers {
		name := p.pod.Spec.Containers[i].Name
		if all[name].phase != done || p.flying(Action{Kind: Start, Container: name}.Key()) {
			return false
		}
	}
	return len(p.pod.Spec.Containers) > 0
}

// hooked reports whether a container runs whose start has not ended: its postStart
// hook runs, for as long as it likes.
func (p *containers) hooked(c *v1.Container) bool {
	if !p.flying(Action{Kind: Start, Container: c.Name}.Key()) {
		return false
	}
	message := "container " + c.Name + " is being started"
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		message = "the postStart hook of container " + c.Name + " has not ended"
	}
	p.wait("runtime", "start", message)
	return true
}

// ephemeral starts ephemeral containers; they are never restarted.
func (p *containers) ephemeral(active *Sandbox, all map[string]assessment) {
	for kind, c := range pod.Containers(p.pod) {
		if kind == pod.Ephemeral && all[c.Name].phase == absent && p.f.Containers[c.Name].Instances == 0 {
			p.launch(c, kind, active, &queue{})
		}
	}
}

// initialize sees to init containers and sidecars. ready: regular containers
// may run. failed: an init container failed for good.
func (p *containers) initialize(active *Sandbox, all map[string]assessment) (ready, failed bool) {
	inits := p.pod.Spec.InitContainers
	if len(inits) == 0 || p.closing(all) {
		return true, false
	}
	sandbox := noSandbox
	if active != nil {
		sandbox = active.ID
	}
	initialized := p.initialized(sandbox)
	// The completed ones may have been removed: the last one that ran says how
	// far the pod is.
	last := -1
	for i := range inits {
		a := all[inits[i].Name]
		if a.phase != absent {
			last = i
		}
		if a.unread {
			p.refresh()
		}
		p.stopIf(inits[i].Name, a)
	}
	line := &queue{}
	for i := range inits {
		c := &inits[i]
		kind, at := pod.Init, all[c.Name].phase
		if pod.IsSidecar(c) {
			kind = pod.Sidecar
			if at == up {
				p.hooked(c)
			}
			if at == due || at == absent && (initialized || i < last || i == last+1 && p.reached(inits, last, sandbox, initialized, all)) {
				p.launch(c, kind, active, line)
			}
			continue
		}
		if initialized || i < last {
			continue
		}
		switch {
		case at == due, at == absent && i == last+1 && p.reached(inits, last, sandbox, initialized, all):
			p.launch(c, kind, active, line)
		case at == done && !p.succeeded(c, sandbox):
			return false, true
		}
	}
	return initialized || last == len(inits)-1 && p.reached(inits, last, sandbox, initialized, all), false
}

// reached reports whether the init container at index last lets the next one
// start: it is done, or a sidecar that has started.
func (p *containers) reached(inits []v1.Container, last int, sandbox string, initialized bool, all map[string]assessment) bool {
	if last < 0 || initialized {
		return true
	}
	c := &inits[last]
	if !pod.IsSidecar(c) {
		return all[c.Name].phase == done && p.succeeded(c, sandbox)
	}
	if p.flying(Action{Kind: Start, Container: c.Name}.Key()) {
		return false // its postStart hook runs
	}
	o := p.newest(c.Name, sandbox)
	// An instance that was replaced, because a probe failed, ran until it was told to end.
	replaced := p.instanceByID(p.f.Containers[c.Name].Replaced)
	ran := replaced != nil && replaced.Sandbox == sandbox
	switch at := all[c.Name].phase; {
	case at == stopping && o == replaced && c.StartupProbe == nil:
		return ran
	case at != up:
		return false
	case c.StartupProbe != nil:
		return p.in.Verdicts[o.ID].Started
	}
	return ran || p.settled(o)
}

// settled reports whether a sidecar without a startup probe has run for long enough to count
// as started.
func (p *containers) settled(o *Instance) bool {
	age := p.in.Now.Sub(o.CreatedAt)
	if age < 0 || age >= sidecarSettles { // before it: the clock was set back
		return true
	}
	p.wake(o.CreatedAt.Add(sidecarSettles))
	return false
}

// queue keeps containers in the order of the spec: while one is on its way, the
// later ones wait with their start, though not with their images. One that
// failed or is held back lets the next go first.
type queue struct{ busy bool }

// launch brings a container one step nearer to running. That it was held back goes on showing until
// the next instance is started, where nothing newer shows.
func (p *containers) launch(c *v1.Container, kind pod.ContainerKind, active *Sandbox, line *queue) {
	id, at, ok := p.ended(c.Name)
	if !ok || p.f.Told["crash/"+c.Name] != id || p.flying(Action{Kind: Start, Container: c.Name}.Key()) {
		p.approach(c, kind, active, line)
		return
	}
	w := p.heldBack(c, at) // a start raises the back-off
	p.approach(c, kind, active, line)
	p.show(w)
}

// approach is launch without what goes on showing.
func (p *containers) approach(c *v1.Container, kind pod.ContainerKind, active *Sandbox, line *queue) {
	start := Action{Kind: Start, Container: c.Name}
	p.recent(c, start.Key())
	if p.flying(start.Key()) {
		line.busy = true
		if p.queued(start.Key()) {
			p.waiting(c)
			p.wait("podworker", "start", "container "+c.Name+" waits for its turn: the runtime is starting others")
			return
		}
		p.coming(c, "start", "container "+c.Name+" is being started")
		return
	}
	if p.crashing(c) || p.failing(c, start.Key()) {
		return
	}
	ref, ok := p.image(c)
	if !ok {
		if !p.pulling(c) {
			return // held back: the next may go
		}
		line.busy = true
		return
	}
	waiting := line.busy
	line.busy = true
	switch {
	case active == nil:
		p.coming(c, "sandbox", "")
	case !p.in.Volumes.Ready:
		p.waiting(c)
		p.wait("volume", "mount", p.in.Volumes.Waiting)
	case kind == pod.Ephemeral && p.undeclared(): // it may be the first to mount a volume
		p.waiting(c)
		p.wait("volume", "declare", "volume has not been told yet which volumes container "+c.Name+" mounts")
	case waiting:
		p.coming(c, "start", "")
	case !p.in.ServicesKnown && !pod.IsStatic(p.pod):
		p.waiting(c)
		p.wait("config", "services", "services have not been read yet")
	case !p.in.NodeKnown:
		p.waiting(c)
		p.wait("resource", "node", "the node's resources have not been read yet")
	case !p.in.Resources.Read:
		p.waiting(c)
		p.wait("resource", "allocation", "the pod's allocation has not been read yet")
	case !p.networked():
		p.waiting(c)
	case p.leftover(c.Name):
		p.coming(c, "remove", p.unremoved(c.Name))
	case p.former(c.Name):
		p.coming(c, "stop", "an earlier instance of container "+c.Name+" is being stopped")
	case !p.in.Observed.Verified:
		p.waiting(c)
		p.refresh()
	default:
		p.run(c, active, ref)
		p.coming(c, "start", "container "+c.Name+" is being started")
	}
}

// recent keeps showing why the last start failed: for a moment after it did,
// and while the next is tried.
func (p *containers) recent(c *v1.Container, key Key) {
	if f, ok := p.f.Failures[key]; ok && !f.Away {
		shown := f.At.Add(errorShown)
		if p.in.Now.Before(shown) || p.flying(key) {
			p.wake(shown)
			p.show(ContainerWait{Container: c.Name, Reason: f.Reason, Message: f.Message, Retry: f.Retry, LastError: f.Message})
		}
	}
}

// run starts the next instance.
func (p *containers) run(c *v1.Container, active *Sandbox, ref string) {
	facts := p.f.Containers[c.Name]
	if _, at, ok := p.ended(c.Name); ok {
		facts.Crash = p.in.Settings.Crash.Next(facts.Crash, at, p.in.Now)
	}
	facts.Size = new(pod.SizeOf(p.pod, c))
	p.f.Containers[c.Name] = facts
	delete(p.f.Images, Action{Kind: Pull, Container: c.Name}.Key())
	p.start(Action{Kind: Start, Container: c.Name, Sandbox: active.ID, Attempt: p.attempt(c.Name), Image: c.Image, Ref: ref})
}

// leftover removes an instance that was created and never started: what an
// earlier life of this process was about to start, or was starting. One that the runtime
// does not remove holds the next instance up no longer.
func (p *containers) leftover(name string) bool {
	found := false
	for i := range p.in.Observed.Containers {
		if o := &p.in.Observed.Containers[i]; o.Name == name && o.State == Created {
			found = found || !p.stuck(o)
			p.remove(Action{Kind: Remove, ID: o.ID, Container: o.Name})
		}
	}
	return found
}

// former stops what runs of a container that is to be started, an instance of an earlier
// attempt or in a former sandbox: the runtime finished its start after its caller had given
// it up. Two instances of a container never run side by side.
func (p *containers) former(name string) bool {
	found := false
	for i := range p.in.Observed.Containers {
		if o := &p.in.Observed.Containers[i]; o.Name == name && p.live(o) {
			found = true
			p.kill(o, p.in.Now.Add(containerGrace(p.pod)), "", true)
		}
	}
	return found
}

// crashing reports whether the restart back-off holds the container.
func (p *containers) crashing(c *v1.Container) bool {
	facts := p.f.Containers[c.Name]
	if key := restart.CrashKey(p.pod, c); facts.CrashKey != key {
		facts.CrashKey, facts.Crash = key, restart.Backoff{}
		p.f.Containers[c.Name] = facts
	}
	id, at, ok := p.ended(c.Name)
	if !ok || !p.in.Settings.Crash.Holds(facts.Crash, at, p.in.Now) {
		return false
	}
	w := p.heldBack(c, at)
	p.show(w)
	p.wake(w.Retry)
	p.tell("crash/"+c.Name, id, Event{Container: c.Name, Warning: true, Reason: "BackOff",
		Message: fmt.Sprintf("Back-off restarting failed container %s in pod %s", c.Name, pod.String(p.pod))})
	p.waitFor("runtime", "back-off", fmt.Sprintf("container %s is held back after it failed", c.Name), w.Retry)
	return true
}

// heldBack is what shows of a container that ended at a time and is held back by the restart back-off.
func (p *containers) heldBack(c *v1.Container, at time.Time) ContainerWait {
	crash := p.f.Containers[c.Name].Crash
	return ContainerWait{
		Container: c.Name, Reason: reason.CrashLoopBackOff, Retry: p.in.Settings.Crash.Due(crash, at), BackOff: crash.Delay,
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", crash.Delay, c.Name, pod.String(p.pod)),
	}
}

// failing reports whether the last start failed and the next has to wait.
func (p *containers) failing(c *v1.Container, key Key) bool {
	f, ok := p.f.Failures[key]
	if !ok {
		return false
	}
	if f.Away {
		if !p.backedOff(key) {
			return false
		}
		p.coming(c, "start", f.Message)
		p.waitFor("runtime", "start", f.Message, f.Retry)
		return true
	}
	p.show(ContainerWait{Container: c.Name, Reason: f.Reason, Message: f.Message, Retry: f.Retry, LastError: f.Message})
	if !p.backedOff(key) {
		return false
	}
	p.waitFor("runtime", "start", f.Reason+": "+f.Message, f.Retry)
	return true
}
