package step

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// queue keeps containers in the order of the spec: while one is on its way, the
// later ones wait with their start, though not with their images. One that
// failed or is held back lets the next go first.
type queue struct{ busy bool }

// launch brings a container one step nearer to running.
func (p *planner) launch(c *v1.Container, kind pod.ContainerKind, active *Sandbox, line *queue) {
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
	case waiting:
		p.coming(c, "start", "")
	case !p.in.ServicesKnown && !pod.IsStatic(p.pod):
		p.waiting(c)
		p.wait("config", "services", "services have not been read yet")
	case !p.in.NodeKnown:
		p.waiting(c)
		p.wait("resource", "node", "the node's resources have not been read yet")
	case !p.networked():
		p.waiting(c)
	case p.leftover(c.Name):
		p.coming(c, "remove", "")
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
func (p *planner) recent(c *v1.Container, key Key) {
	if f, ok := p.f.Failures[key]; ok && !f.Away {
		shown := f.At.Add(errorShown)
		if p.in.Now.Before(shown) || p.flying(key) {
			p.wake(shown)
			p.hold(ContainerWait{Container: c.Name, Reason: f.Reason, Message: f.Message, Retry: f.Retry, LastError: f.Message})
		}
	}
}

// run starts the next instance.
func (p *planner) run(c *v1.Container, active *Sandbox, ref string) {
	facts := p.f.Containers[c.Name]
	if _, at, ok := p.ended(c.Name); ok {
		facts.Crash = p.in.Settings.Crash.Next(facts.Crash, at, p.in.Now)
	}
	size := pod.SizeOf(p.pod, c)
	facts.Size = &size
	p.f.Containers[c.Name] = facts
	delete(p.f.Images, Action{Kind: Pull, Container: c.Name}.Key())
	p.start(Action{Kind: Start, Container: c.Name, Sandbox: active.ID, Attempt: p.attempt(c.Name), Image: c.Image, Ref: ref})
}

// attempt is the restart count of the next instance.
func (p *planner) attempt(name string) int {
	n := max(p.f.Containers[name].Instances, p.in.Logged[name])
	if n > 0 || p.in.Desired == nil {
		return n
	}
	status := &p.in.Desired.Pod.Status
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			s := &list[i]
			if s.Name == name && s.RestartCount == 0 && s.State.Waiting != nil && s.LastTerminationState.Terminated == nil {
				return 0 // made, perhaps, and not started
			}
			if s.Name == name && (s.ContainerID != "" || s.RestartCount > 0 || s.LastTerminationState.Terminated != nil) {
				return int(s.RestartCount) + 1
			}
		}
	}
	return 0
}

// leftover removes an instance that was created and never started: what an
// earlier life of this process was about to start, or was starting.
func (p *planner) leftover(name string) bool {
	found := false
	for i := range p.in.Observed.Containers {
		if o := &p.in.Observed.Containers[i]; o.Name == name && o.State == Created {
			found = true
			p.remove(Action{Kind: Remove, ID: o.ID, Container: o.Name})
		}
	}
	return found
}

// crashing tells whether the restart back-off holds the container.
func (p *planner) crashing(c *v1.Container) bool {
	facts := p.f.Containers[c.Name]
	if key := restart.CrashKey(p.pod, c); facts.CrashKey != key {
		facts.CrashKey, facts.Crash = key, restart.Backoff{}
		p.f.Containers[c.Name] = facts
	}
	id, at, ok := p.ended(c.Name)
	if !ok {
		return false
	}
	policy := p.in.Settings.Crash
	due := policy.Due(facts.Crash, at)
	name := pod.String(p.pod)
	held := p.in.Now.Before(due)
	if held || p.f.Told["crash/"+c.Name] == id {
		// It goes on showing until the next instance runs.
		p.hold(ContainerWait{
			Container: c.Name, Reason: crashLoopBackOff, Retry: due, BackOff: facts.Crash.Delay,
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", facts.Crash.Delay, c.Name, name),
		})
	}
	if !held {
		return false
	}
	p.wake(due)
	p.tell("crash/"+c.Name, id, Event{Container: c.Name, Warning: true, Reason: "BackOff",
		Message: fmt.Sprintf("Back-off restarting failed container %s in pod %s", c.Name, name)})
	p.waitFor("runtime", "back-off", fmt.Sprintf("container %s is held back after it failed", c.Name), due)
	return true
}

// failing tells whether the last start failed and the next has to wait.
func (p *planner) failing(c *v1.Container, key Key) bool {
	f, ok := p.f.Failures[key]
	if !ok {
		return false
	}
	if f.Away {
		if !p.held(key) {
			return false
		}
		p.coming(c, "start", f.Message)
		p.waitFor("runtime", "start", f.Message, f.Retry)
		return true
	}
	p.hold(ContainerWait{Container: c.Name, Reason: f.Reason, Message: f.Message, Retry: f.Retry, LastError: f.Message})
	if !p.held(key) {
		return false
	}
	p.waitFor("runtime", "start", f.Reason+": "+f.Message, f.Retry)
	return true
}

// image is the reference to start the container with, once its image and those
// of its image volumes are present; it starts the pulls that are missing.
func (p *planner) image(c *v1.Container) (ref string, ok bool) {
	ok = true
	for i := range c.VolumeMounts {
		if v := imageVolume(p.pod, c.VolumeMounts[i].Name); v != nil {
			if _, have := p.fetch(c, Action{Kind: Pull, Container: c.Name, Volume: v.Name, Image: v.Image.Reference}); !have {
				ok = false
			}
		}
	}
	ref, have := p.fetch(c, Action{Kind: Pull, Container: c.Name, Image: c.Image})
	return ref, ok && have
}

func imageVolume(p *v1.Pod, name string) *v1.Volume {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.Name == name && v.Image != nil {
			return v
		}
	}
	return nil
}

// fetch makes one image present, honouring the back-off of its pulls.
func (p *planner) fetch(c *v1.Container, a Action) (ref string, ok bool) {
	key := a.Key()
	if have, ok := p.f.Images[key]; ok && have.Image == a.Image {
		return have.Ref, true
	}
	if p.held(key) {
		f := p.f.Failures[key]
		p.coming(c, "pull", f.Message)
		p.waitFor("runtime", "pull", f.Message, f.Retry)
		return "", false
	}
	facts := p.f.Pulls[key]
	failed := facts.Image == a.Image && facts.Reason != ""
	if p.flying(key) {
		switch {
		case failed:
			p.pullWait(c, a, facts)
		case p.queued(key):
			p.waiting(c)
			p.wait("podworker", "pull", "image "+a.Image+" waits for its turn: others are being pulled")
		default:
			p.coming(c, "pull", "image "+a.Image+" is being pulled")
		}
		return "", false
	}
	if failed {
		p.pullWait(c, a, facts)
		if due := facts.Backoff.Updated.Add(facts.Backoff.Delay); p.in.Now.Before(due) {
			p.wake(due)
			p.look(c, a, facts)
			p.waitFor("runtime", "pull", facts.Backoff.LastError, due)
			return "", false
		}
	}
	p.start(a)
	p.coming(c, "pull", "image "+a.Image+" is being pulled")
	return "", false
}

// look sees, from time to time, whether an image whose pull is held back has come
// on another way. With the policy Always only a pull will do.
func (p *planner) look(c *v1.Container, pull Action, facts PullFacts) {
	policy := c.ImagePullPolicy
	if pull.Volume != "" {
		policy = imageVolume(p.pod, pull.Volume).Image.PullPolicy
	}
	look := pull
	look.Kind = Look
	if policy == v1.PullAlways || !pullErrors[facts.Reason] || p.flying(look.Key()) {
		return // without a pull the next try is a look
	}
	last := facts.Backoff.Updated
	if facts.Looked.After(last) {
		last = facts.Looked
	}
	if at := last.Add(lookAgain); p.in.Now.Before(at) {
		p.wake(at)
		return
	}
	p.start(look)
}

// pullErrors are what a registry's answer is called. The other reasons are about
// the pod or this node: they stay in the status while they last, for the back-off
// between two looks is not one of pulls.
var pullErrors = map[string]bool{"ErrImagePull": true, "RegistryUnavailable": true, "SignatureValidationFailed": true}

// pullWait words the wait for an image whose last pull failed: the error first,
// the back-off once the error has been seen.
func (p *planner) pullWait(c *v1.Container, a Action, facts PullFacts) {
	shown := facts.Backoff.Updated.Add(errorShown)
	w := ContainerWait{
		Container: c.Name, Reason: facts.Reason, Message: facts.Backoff.LastError, LastError: facts.Backoff.LastError,
		BackOff: facts.Backoff.Delay, Retry: facts.Backoff.Updated.Add(facts.Backoff.Delay),
	}
	switch {
	case !pullErrors[facts.Reason]:
		p.hold(w)
		return
	case p.in.Now.Before(shown):
		p.wake(shown)
		p.hold(w)
		return
	}
	w.Reason = imagePullBackOff
	w.LastError = facts.Reason + ": " + facts.Backoff.LastError
	w.Message = fmt.Sprintf("Back-off pulling image %q: %s", a.Image, w.LastError)
	p.hold(w)
	about, topic, whose := facts.Backoff.Updated.Format(time.RFC3339Nano), "pull/"+c.Name, c.Name
	if a.Volume != "" {
		topic, whose = string(a.Key()), "" // the pod's, as its pulls are
	}
	p.tell(topic, about, Event{Container: whose, Reason: "BackOff", Message: fmt.Sprintf("Back-off pulling image %q", a.Image)})
	p.tell(topic+"/failed", about, Event{Container: c.Name, Warning: true, Reason: "Failed", Message: "Error: " + imagePullBackOff})
}

// pulling tells whether a pull for the container is on its way.
func (p *planner) pulling(c *v1.Container) bool {
	for _, f := range p.in.Flights {
		if f.Action.Kind == Pull && f.Action.Container == c.Name {
			return true
		}
	}
	for _, a := range p.plan.Start {
		if a.Kind == Pull && a.Container == c.Name {
			return true
		}
	}
	return false
}

// coming says that the container is on its way: what is waited for is the
// runtime.
func (p *planner) coming(c *v1.Container, step, message string) {
	p.waiting(c)
	p.wait("runtime", step, message)
}

// waiting gives a container that never ran the reason it shows meanwhile.
func (p *planner) waiting(c *v1.Container) {
	if p.newest(c.Name, "") != nil {
		return
	}
	reason := containerCreating
	if len(p.pod.Spec.InitContainers) > 0 {
		reason = podInitializing
	}
	p.hold(ContainerWait{Container: c.Name, Reason: reason})
}
