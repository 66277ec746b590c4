// Package pressure turns measurements into node conditions. It is pure: the
// former conditions, the measurements and the time come in.
package pressure

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Condition of the node that a signal belongs to.
type Condition int

// The conditions.
const (
	Memory Condition = iota
	Disk
	PID
)

// Signal is one measurement against its threshold, in the signal's own unit.
type Signal struct {
	Name                 string
	Condition            Condition
	Available, Threshold int64
}

// State is one condition.
type State struct {
	Under bool
	// Since is when Under last changed.
	Since time.Time
	// Crossed is when a threshold was last found crossed.
	Crossed time.Time
	Message string
}

// Evaluate applies measurements to the former state. A condition begins when a
// threshold is crossed, and ends when none has been for transition
// (evictionPressureTransitionPeriod), so that it does not flap.
func Evaluate(former map[Condition]State, signals []Signal, transition time.Duration, now time.Time) map[Condition]State {
	crossed := map[Condition][]string{}
	for _, s := range signals {
		if s.Available < s.Threshold {
			crossed[s.Condition] = append(crossed[s.Condition], fmt.Sprintf("%s: %d of at least %d", s.Name, s.Available, s.Threshold))
		}
	}
	next := map[Condition]State{}
	for _, c := range []Condition{Memory, Disk, PID} {
		state, known := former[c]
		if !known {
			state.Since = now
		}
		if reasons := crossed[c]; len(reasons) > 0 {
			slices.Sort(reasons)
			if !state.Under {
				state.Under, state.Since = true, now
			}
			state.Crossed = now
			state.Message = strings.Join(reasons, ", ")
		} else if state.Under && now.Sub(state.Crossed) >= transition {
			state = State{Since: now, Crossed: state.Crossed}
		}
		next[c] = state
	}
	return next
}
