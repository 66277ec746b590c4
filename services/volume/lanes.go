// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
)

// slowPass is how long a pass may take before its pod's item says where it is.
const slowPass = time.Second

// lane is some of a pod's volumes, which are made sure of one after another: those of a claim,
// or of one name, but for those that are mounted and have neither a claim nor a driver, which
// share a lane, for many of them may hang on one server. The lanes do not wait for each other:
// what is renewed under running containers is not held up by a token that is being made, or by
// a volume that hangs or takes half an hour to be given to a group. Guarded by pods.mu.
type lane struct {
	of      string   // by laneOf; empty for the removal of all
	volumes []string // their names
	stage   laneStage
	dirty   bool      // there is a cause for another pass
	due     time.Time // of the next pass without a cause; zero for none
	// wait is how far off due was when the last pass ended.
	wait time.Duration
}

// laneStage: idle -> running -> late -> idle, or past late.
type laneStage int

const (
	idle laneStage = iota
	running
	late // it has run for slowPass
)

// laneOf is which lane a volume is in. Two of one claim are at one place.
func laneOf(p *v1.Pod, v *v1.Volume) string {
	if claim := volumetype.ClaimName(p, v); claim != "" {
		return "claim " + claim
	}
	if v.CSI == nil && volumetype.Of(v).Origin == volumetype.Elsewhere {
		return "mounts"
	}
	return "volume " + v.Name
}

// declared notes the pod, and gives its volumes their lanes.
func (w *podWork) declared(p *v1.Pod) {
	w.pod = p
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		of := laneOf(p, v)
		at := slices.IndexFunc(w.lanes, func(l *lane) bool { return l.of == of })
		switch {
		case at < 0:
			w.lanes = append(w.lanes, &lane{of: of, volumes: []string{v.Name}})
		case !slices.Contains(w.lanes[at].volumes, v.Name):
			w.lanes[at].volumes = append(w.lanes[at].volumes, v.Name)
		}
	}
}

// touch is a cause for another pass of each lane.
func (w *podWork) touch() {
	w.removal.dirty = true
	for _, l := range w.lanes {
		l.dirty = true
	}
}

// touchMadeOf is a cause for another pass of each lane with a volume made of one of these
// objects, by config's keys.
func (w *podWork) touchMadeOf(keys []string) {
	for _, l := range w.lanes {
		for _, name := range l.volumes {
			if slices.ContainsFunc(keys, func(key string) bool { return w.needs[name][key] }) {
				l.dirty = true
			}
		}
	}
}

// open are the lanes that may have a pass now. A removal begins when nothing else is under
// way, and then nothing else begins.
func (w *podWork) open() []*lane {
	if !w.withdrawing {
		return w.lanes
	}
	if w.busy() {
		return nil
	}
	return []*lane{&w.removal}
}

// busy reports whether a volume is being made.
func (w *podWork) busy() bool {
	return slices.ContainsFunc(w.lanes, func(l *lane) bool { return l.stage != idle })
}

// running reports whether a pass is under way that is not late.
func (w *podWork) running() bool {
	return slices.ContainsFunc(w.lanes, func(l *lane) bool { return l.stage == running })
}

// next reports whether a pass is to begin, and after how long to ask again if not; zero for
// no matter when.
func (l *lane) next(now time.Time) (begins bool, wait time.Duration) {
	if l.stage != idle {
		return false, 0
	}
	left := l.due.Sub(now)
	if !l.due.IsZero() && (left <= 0 || left > l.wait) { // over, or the clock was set back
		l.dirty, l.due = true, time.Time{}
	}
	if l.dirty || l.due.IsZero() {
		return l.dirty, 0
	}
	return false, max(left, time.Millisecond)
}

// begin begins a pass.
func (l *lane) begin() {
	l.stage, l.dirty, l.due = running, false, time.Time{}
}

// rest ends a pass; due is when the next one begins without a cause, zero for never. It
// is a time of the wall clock, as is the end of what is renewed then: a clock that is set
// right counts.
func (l *lane) rest(due, now time.Time) {
	l.stage, l.due = idle, due.Round(0)
	l.wait = l.due.Sub(now.Round(0))
}
