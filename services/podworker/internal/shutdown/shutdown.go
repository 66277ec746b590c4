// SPDX-License-Identifier: Apache-2.0

// Package shutdown decides how pods end when the node is shut down: which end
// now, within which time, and when nothing holds the machine any more.
//
// It is pure: configuration, pods, what logind says and the time go in, the next
// state comes out. The state is small and kept in the journal, so that a restart in
// the middle goes on where it was:
//
//	staying ─preparing─► ending ─pods gone, or time over─► reporting ─told─► ended
//	   ◄────────────────────────cancelled, or another boot───────────────────┘
//
// Groups of pods end one after the other, from the lowest priority to the highest;
// a group without pods takes no time (KEP-2000, KEP-2712).
package shutdown

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ReportTime is what the last statuses get to reach the API server, once pods have
// ended.
const ReportTime = 5 * time.Second

// Stage is where the node is on its way down. The zero Stage is Staying.
type Stage string

// The stages.
const (
	Staying   Stage = ""
	Ending    Stage = "ending"
	Reporting Stage = "reporting"
	Ended     Stage = "ended"
)

// Group is the time of the pods from one priority up to the next group's.
type Group struct {
	Priority int32
	Period   time.Duration
}

// Total is the time of all groups.
func Total(groups []Group) (sum time.Duration) {
	for _, g := range groups {
		sum += g.Period
	}
	return sum
}

// Sorted are groups from the lowest priority to the highest.
func Sorted(groups []Group) []Group {
	groups = slices.Clone(groups)
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(a.Priority, b.Priority) })
	return groups
}

// Of is the group a priority falls into; pods below the first belong to it too.
func Of(groups []Group, priority int32) int {
	at := 0
	for i, g := range groups {
		if g.Priority <= priority {
			at = i
		}
	}
	return at
}

// State is what is remembered.
type State struct {
	Stage Stage `json:"stage,omitempty"`
	// Boot is the boot the shutdown ends.
	Boot string `json:"boot,omitempty"`
	// Since is when the shutdown was announced, EndedAt when pods were done with.
	// Both stay until the next shutdown, for metrics.
	Since   time.Time `json:"since,omitzero"`
	EndedAt time.Time `json:"endedAt,omitzero"`
	// Group ends since GroupSince.
	Group      int       `json:"group,omitempty"`
	GroupSince time.Time `json:"groupSince,omitzero"`
}

// Active reports whether the node is on its way down.
func (s State) Active() bool { return s.Stage != Staying }

// Turn reports whether a pod is to end now, and within which time.
func (s State) Turn(groups []Group, priority int32) (end bool, within time.Duration) {
	if !s.Active() || len(groups) == 0 {
		return false, 0
	}
	own := Of(groups, priority)
	return s.Stage != Ending || own <= s.Group, groups[own].Period
}

// Pod is one that has not been refused.
type Pod struct {
	UID      types.UID
	Priority int32
	// Gone: nothing of it runs, and its volumes are unmounted.
	Gone bool
	// Told: the API server has its last status, or needs none.
	Told bool
}

// Input is everything a step depends on.
type Input struct {
	Now    time.Time
	Boot   string
	Groups []Group
	// Preparing is what logind says; nil while it does not answer.
	Preparing *bool
	// Known: Pods are all there are.
	Known bool
	Pods  []Pod
	State State
}

// Change is what a step is worth telling.
type Change string

// The changes.
const (
	Nothing   Change = ""
	Began     Change = "began"
	Cancelled Change = "cancelled"
)

// Plan is what follows.
type Plan struct {
	State  State
	Change Change
	// Hold: the machine must not go down yet.
	Hold bool
	// WakeAt is when to step again if nothing happens; zero for never.
	WakeAt time.Time
}

// Step plans. The same input gives the same plan.
func Step(in Input) Plan {
	p := Plan{State: in.State}
	s := &p.State
	if s.Active() && s.Boot != in.Boot {
		s.Stage = Staying // it went down, and is up again
	}
	if len(in.Groups) == 0 {
		s.Stage = Staying // it is not configured any more
		return p
	}
	switch {
	case in.Preparing == nil:
	case *in.Preparing && !s.Active():
		*s = State{Stage: Ending, Boot: in.Boot, Since: in.Now, GroupSince: in.Now}
		p.Change = Began
	case !*in.Preparing && s.Active():
		s.Stage = Staying
		p.Change = Cancelled
	}
	if s.Stage == Ending {
		end(in, &p)
	}
	if s.Stage == Reporting {
		report(in, &p)
	}
	p.Hold = s.Stage != Ended
	return p
}

// end goes on to the next group whose pods have not gone.
func end(in Input, p *Plan) {
	s := &p.State
	s.GroupSince = notAhead(s.GroupSince, in.Now)
	for s.Group < len(in.Groups) {
		over := s.GroupSince.Add(in.Groups[s.Group].Period)
		if !gone(in, s.Group) && in.Now.Before(over) {
			p.WakeAt = over
			return
		}
		s.Group++
		s.GroupSince = in.Now
	}
	s.Group = len(in.Groups) - 1
	s.Stage, s.EndedAt = Reporting, in.Now
}

// gone reports whether no pod of a group is left.
func gone(in Input, group int) bool {
	return in.Known && !slices.ContainsFunc(in.Pods, func(pod Pod) bool { return !pod.Gone && Of(in.Groups, pod.Priority) == group })
}

// notAhead is a time that a wait is counted from; now where the clock was set back since.
// The machine, which goes by no clock that is set, does not wait until it is there again.
func notAhead(since, now time.Time) time.Time {
	if since.After(now) {
		return now
	}
	return since
}

// report waits until all that ended was told, for a while.
func report(in Input, p *Plan) {
	p.State.EndedAt = notAhead(p.State.EndedAt, in.Now)
	over := p.State.EndedAt.Add(ReportTime)
	untold := !in.Known || slices.ContainsFunc(in.Pods, func(pod Pod) bool { return pod.Gone && !pod.Told })
	if untold && in.Now.Before(over) {
		p.WakeAt = over
		return
	}
	p.State.Stage = Ended
}
