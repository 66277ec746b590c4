// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"fmt"
	"time"
)

// Terms of a trial.
type Terms struct {
	// Version that must answer.
	Version string
	// Former is the epoch of the process before the switch.
	Former string
	// Serving: the service was serving before, so it has to afterwards. Otherwise, for
	// instance while the API server is away, it only has to answer.
	Serving bool
	// Steady is for how long, without a restart.
	Steady time.Duration
	// Limit of the whole trial.
	Limit time.Duration
	// Restarts is the number of restarts at which the trial fails.
	Restarts int
}

// Seen is the service's Hello, or why there was none.
type Seen struct {
	// Err is why there was no answer.
	Err string
	// Version, Epoch and Protocol the service said.
	Version, Epoch string
	Protocol       uint32
	// Understood: this program speaks that protocol or a neighbouring one.
	Understood bool
	Serving    bool
	// Reason for not serving.
	Reason string
}

// Verdict of a trial.
type Verdict int

// Verdicts.
const (
	Waiting Verdict = iota
	Passed
	Failed
)

// Trial judges a service after a switch.
type Trial struct {
	terms Terms
	// epoch of the process on trial, and since when it has been as it must be.
	epoch  string
	since  time.Duration
	good   bool
	starts int
	last   string
}

// NewTrial begins a trial.
func NewTrial(terms Terms) *Trial { return &Trial{terms: terms, last: "it did not answer"} }

// Step takes what was seen at a time after the switch. The text is why the trial
// failed, or what it waits for.
func (t *Trial) Step(at time.Duration, s Seen) (Verdict, string) {
	if why := t.fatal(s); why != "" {
		return Failed, why
	}
	ok, why := t.judge(s)
	if !ok {
		t.good, t.last = false, why
	} else if !t.good {
		t.good, t.since = true, at
	}
	switch {
	case t.good && at-t.since >= t.terms.Steady:
		return Passed, ""
	case at >= t.terms.Limit && t.good:
		return Failed, fmt.Sprintf("it did its work for %s only, of %s", at-t.since, t.terms.Steady)
	case at >= t.terms.Limit:
		return Failed, fmt.Sprintf("after %s: %s", t.terms.Limit, t.last)
	case t.good:
		return Waiting, "it does its work"
	}
	return Waiting, t.last
}

// fatal is why the trial has failed for good; empty if waiting may help.
func (t *Trial) fatal(s Seen) string {
	if s.Err != "" || s.Epoch == t.terms.Former {
		return ""
	}
	if s.Epoch != t.epoch {
		t.epoch, t.good = s.Epoch, false
		t.starts++
	}
	switch {
	case s.Version != t.terms.Version:
		return fmt.Sprintf("version %s answers, not %s", s.Version, t.terms.Version)
	case !s.Understood:
		return fmt.Sprintf("it speaks protocol %d, which the others do not understand", s.Protocol)
	case t.starts > t.terms.Restarts:
		return fmt.Sprintf("it was started %d times", t.starts)
	}
	return ""
}

func (t *Trial) judge(s Seen) (ok bool, why string) {
	switch {
	case s.Err != "":
		return false, s.Err
	case s.Epoch == t.terms.Former:
		return false, "the former process still answers"
	case t.terms.Serving && !s.Serving:
		return false, "it does not serve: " + s.Reason
	}
	return true, ""
}
