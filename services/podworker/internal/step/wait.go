package step

import (
	"slices"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
)

// How long things wait where the kubelet has a number for it.
const (
	// notYetRetry bounds the wait for resource to change its mind unasked.
	notYetRetry = 10 * time.Second
	// appealRetry is when a static pod that was refused is asked for again: after
	// this at the earliest, then twice as long each time, up to appealRetryMost,
	// unless the node's resources change.
	appealRetry     = 10 * time.Second
	appealRetryMost = 5 * time.Minute
	// errorShown is how long ErrImagePull shows before it reads
	// ImagePullBackOff: the kubelet's shortest requeue after an error.
	errorShown = 5 * time.Second
	// lookAgain is how often an image is looked for whose pull is held back: the
	// kubelet does at each try to start the pod, which it puts off by this much.
	lookAgain = 10 * time.Second
	// awayRetry is when somebody who was not there is asked again: after this,
	// then twice as long each time, up to awayRetryMost.
	awayRetry     = 100 * time.Millisecond
	awayRetryMost = 2 * time.Second
	// lostExitCode stands in for the exit code of an instance that is gone.
	lostExitCode = 137
	// minStopGrace is the least the runtime gets to stop a container.
	minStopGrace = 2 * time.Second
	// graceStep is the least by which a stop under way is worth shortening.
	graceStep = 500 * time.Millisecond
	// minPodGrace is the least a pod gets.
	minPodGrace = time.Second
)

// Reasons the plan itself words.
const (
	containerCreating = "ContainerCreating"
	podInitializing   = "PodInitializing"
	crashLoopBackOff  = "CrashLoopBackOff"
	imagePullBackOff  = "ImagePullBackOff"
	restartingAll     = "RestartingAllContainers"
	configError       = "CreateContainerConfigError"
)

// wait sets what the pod as a whole waits for; the first one said counts.
func (p *planner) wait(owner, step, message string) {
	if p.plan.Wait == nil {
		p.plan.Wait = &Wait{Owner: owner, Step: step, Message: message}
	}
}

// waitFor is wait with the time of the next try.
func (p *planner) waitFor(owner, step, message string, retry time.Time) {
	if p.plan.Wait == nil {
		p.plan.Wait = &Wait{Owner: owner, Step: step, Message: message, Retry: retry}
	}
}

// hold sets why a container waits; the first reason said counts.
func (p *planner) hold(w ContainerWait) {
	if _, ok := p.waits[w.Container]; !ok {
		p.waits[w.Container] = w
	}
}

// finishWaits orders the waits and keeps Since for as long as a wait lasts.
func (p *planner) finishWaits() {
	if p.pod != nil {
		for _, c := range pod.Containers(p.pod) {
			if w, ok := p.waits[c.Name]; ok {
				p.plan.Waits = append(p.plan.Waits, w)
			}
		}
	}
	if w := p.plan.Wait; w != nil {
		w.Since = p.in.Now
		if was := p.in.Facts.Wait; was != nil && was.Owner == w.Owner && was.Step == w.Step {
			w.Since = was.Since
		}
	}
	p.f.Wait = p.plan.Wait
	slices.Sort(p.plan.Cancel)
}

func (p *planner) event(e Event) { p.plan.Events = append(p.plan.Events, e) }

// tell emits an event unless the last one under the same topic was about the
// same thing.
func (p *planner) tell(topic, about string, e Event) {
	if p.f.Told[topic] == about {
		return
	}
	p.f.Told[topic] = about
	p.event(e)
}

// remind is tell for what may last: it is told again meanwhile.
func (p *planner) remind(topic, about string, e Event) {
	again := p.f.ToldAt[topic].Add(pod.EventReminder)
	if p.f.Told[topic] != about || !p.in.Now.Before(again) {
		p.f.Told[topic], p.f.ToldAt[topic] = about, p.in.Now
		p.event(e)
		again = p.in.Now.Add(pod.EventReminder)
	}
	p.wake(again)
}
