// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod/reason"
)

// images makes the images of containers present.
type images struct{ stops }

// image is the reference to start the container with, once its image and those
// of its image volumes are present; it starts the pulls that are missing.
func (p *images) image(c *v1.Container) (ref string, ok bool) {
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
func (p *images) fetch(c *v1.Container, a Action) (ref string, ok bool) {
	key := a.Key()
	if have, ok := p.f.Images[key]; ok && have.Image == a.Image {
		return have.Ref, true
	}
	if p.backedOff(key) {
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
func (p *images) look(c *v1.Container, pull Action, facts PullFacts) {
	policy := c.ImagePullPolicy
	if pull.Volume != "" {
		policy = imageVolume(p.pod, pull.Volume).Image.PullPolicy
	}
	look := pull
	look.Kind = Look
	if policy == v1.PullAlways || !reason.PullFailed(facts.Reason) || p.flying(look.Key()) {
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

// pullWait words the wait for an image whose last pull failed: the error first,
// the back-off once the error has been seen.
func (p *images) pullWait(c *v1.Container, a Action, facts PullFacts) {
	shown := facts.Backoff.Updated.Add(errorShown)
	w := ContainerWait{
		Container: c.Name, Reason: facts.Reason, Message: facts.Backoff.LastError, LastError: facts.Backoff.LastError,
		BackOff: facts.Backoff.Delay, Retry: facts.Backoff.Updated.Add(facts.Backoff.Delay),
	}
	switch {
	case !reason.PullFailed(facts.Reason):
		p.show(w)
		return
	case p.in.Now.Before(shown):
		p.wake(shown)
		p.show(w)
		return
	}
	w.Reason = reason.ImagePullBackOff
	w.LastError = facts.Reason + ": " + facts.Backoff.LastError
	w.Message = fmt.Sprintf("Back-off pulling image %q: %s", a.Image, w.LastError)
	p.show(w)
	about, topic, whose := facts.Backoff.Updated.Format(time.RFC3339Nano), "pull/"+c.Name, c.Name
	if a.Volume != "" {
		topic, whose = string(a.Key()), "" // the pod's, as its pulls are
	}
	p.tell(topic, about, Event{Container: whose, Reason: "BackOff", Message: fmt.Sprintf("Back-off pulling image %q", a.Image)})
	p.tell(topic+"/failed", about, Event{Container: c.Name, Warning: true, Reason: "Failed", Message: "Error: " + reason.ImagePullBackOff})
}

// pulling reports whether a pull for the container is on its way.
func (p *images) pulling(c *v1.Container) bool {
	for _, f := range p.in.Flights {
		if f.Action.Kind == Pull && f.Action.Container == c.Name {
			return true
		}
	}
	return slices.ContainsFunc(p.plan.Start, func(a Action) bool { return a.Kind == Pull && a.Container == c.Name })
}

// coming says that the container is on its way: what is waited for is the
// runtime.
func (p *images) coming(c *v1.Container, step, message string) {
	p.waiting(c)
	p.wait("runtime", step, message)
}

// waiting gives a container that never ran the reason it shows meanwhile.
func (p *images) waiting(c *v1.Container) {
	if p.newest(c.Name, "") != nil {
		return
	}
	w := ContainerWait{Container: c.Name, Reason: reason.ContainerCreating}
	if len(p.pod.Spec.InitContainers) > 0 {
		w.Reason = reason.PodInitializing
	}
	p.show(w)
}
