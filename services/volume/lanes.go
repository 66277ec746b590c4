// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
)

// slowPass is how long a pass may take before its pod's item says where it is.
const slowPass = time.Second

func laneOf(v *v1.Volume) int {
	if volumetype.Of(v).Origin == volumetype.Elsewhere {
		return mountLane
	}
	return fileLane
}

// touch is a cause for another pass of each lane.
func (w *podWork) touch() {
	for i := range w.lanes {
		w.lanes[i].dirty = true
	}
}

// next reports whether a pass of a lane is to begin, and after how long to ask again if
// not; zero for no matter when. A removal begins when nothing else is under way.
func (w *podWork) next(i int, now time.Time) (begins bool, wait time.Duration) {
	l := &w.lanes[i]
	if l.stage != idle || w.withdrawing && (i != fileLane || w.lanes[mountLane].stage != idle) {
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

// rest ends a pass; due is when the next one begins without a cause, zero for never. It
// is a time of the wall clock, as is the end of what is renewed then: a clock that is set
// right counts.
func (l *lane) rest(due, now time.Time) {
	l.stage, l.due = idle, due.Round(0)
	l.wait = l.due.Sub(now.Round(0))
}
