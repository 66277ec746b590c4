// SPDX-License-Identifier: Apache-2.0

// Package turns decides which of the probes that are due run now. It is pure: probes
// come in, those that may begin go out.
//
// A pod runs at most Share probes at a time; further ones wait in the pod's own queue,
// in order. The first of a pod runs at once, whatever other pods do: how long a probe
// takes is the pod's word (timeoutSeconds), and no pod waits for another's. The further
// ones of all pods together are at most Extra, given out in turn.
package turns

import "slices"

// Limits of what runs at a time.
type Limits struct {
	// Share is how many probes of one pod may run at a time.
	Share int
	// Extra is how many may run besides the first of each pod.
	Extra int
}

// Turns is what runs and what waits. Not safe for concurrent use.
type Turns[T comparable] struct {
	limits  Limits
	extra   int // of Limits.Extra, in use
	pods    map[string]*pod[T]
	waiting []string // UIDs of pods with a queue, whose turn it is first
}

type pod[T comparable] struct {
	running []T
	queue   []T
}

// New makes turns in which nothing runs.
func New[T comparable](limits Limits) *Turns[T] {
	return &Turns[T]{limits: limits, pods: map[string]*pod[T]{}}
}

// Add queues a probe of a pod.
func (t *Turns[T]) Add(uid string, probe T) {
	p := t.pods[uid]
	if p == nil {
		p = &pod[T]{}
		t.pods[uid] = p
	}
	if len(p.queue) == 0 {
		t.waiting = append(t.waiting, uid)
	}
	p.queue = append(p.queue, probe)
}

// Next takes the probes that may begin now. Each must be answered with Done.
func (t *Turns[T]) Next() (begin []T) {
	for more := true; more; {
		more = false
		var passed, served []string // with more in their queue
		for _, uid := range t.waiting {
			p := t.pods[uid]
			if !t.room(p) {
				passed = append(passed, uid)
				continue
			}
			more = true
			begin = append(begin, p.queue[0])
			p.running = append(p.running, p.queue[0])
			if p.queue = p.queue[1:]; len(p.queue) > 0 {
				served = append(served, uid)
			}
		}
		t.waiting = append(passed, served...)
	}
	return begin
}

// room reports whether one more probe of a pod may run, and takes what it needs.
func (t *Turns[T]) room(p *pod[T]) bool {
	switch {
	case len(p.running) == 0:
		return true
	case len(p.running) >= t.limits.Share || t.extra >= t.limits.Extra:
		return false
	}
	t.extra++
	return true
}

// Done says that a probe of a pod has ended.
func (t *Turns[T]) Done(uid string, probe T) {
	p := t.pods[uid]
	if len(p.running) > 1 {
		t.extra--
	}
	p.running = slices.DeleteFunc(p.running, func(other T) bool { return other == probe })
	t.tidy(uid, p)
}

// Keep drops the probes of a pod that wait and are of no use any more. It answers those
// that run and are of none; they hold their turn until Done.
func (t *Turns[T]) Keep(uid string, useful func(T) bool) (running []T) {
	p := t.pods[uid]
	if p == nil {
		return nil
	}
	useless := func(probe T) bool { return !useful(probe) }
	for _, probe := range p.running {
		if useless(probe) {
			running = append(running, probe)
		}
	}
	p.queue = slices.DeleteFunc(p.queue, useless)
	t.tidy(uid, p)
	return running
}

// tidy forgets what is over.
func (t *Turns[T]) tidy(uid string, p *pod[T]) {
	if len(p.queue) > 0 {
		return
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(other string) bool { return other == uid })
	if len(p.running) == 0 {
		delete(t.pods, uid)
	}
}
