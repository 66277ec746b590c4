// SPDX-License-Identifier: Apache-2.0

// Package schedule decides which probe runs when, and what its results mean. It
// is pure: times come in as arguments, launches and verdicts go out.
package schedule

import (
	"cmp"
	"container/heap"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Kind of a probe.
type Kind int

// The kinds of probe. A startup probe holds the other two back.
const (
	Startup Kind = iota
	Liveness
	Readiness
)

func (k Kind) String() string { return [...]string{"Startup", "Liveness", "Readiness"}[k] }

// Result of a probe, or of its thresholds.
type Result int

// Results. Unknown decides nothing.
const (
	Unknown Result = iota
	Success
	Failure
)

func (r Result) String() string { return [...]string{"unknown", "successful", "failed"}[r] }

// Key names one probe of one pod.
type Key struct {
	UID, Container string
	Kind           Kind
}

func (k Key) compare(o Key) int {
	return cmp.Or(cmp.Compare(k.UID, o.UID), cmp.Compare(k.Container, o.Container), cmp.Compare(k.Kind, o.Kind))
}

// Target is a probe that should be running against one container.
type Target struct {
	Key
	// ContainerID without the runtime's prefix.
	ContainerID string
	// Started is when the container started.
	Started time.Time
	Spec    v1.Probe
	// Due is when it was to begin; set by Schedule.Due.
	Due time.Time
}

// Question is the same for targets of a container whose probes run the same
// command: one answer does for all. Network probes are asked each for itself, as
// an application may count them.
func (t Target) Question() string {
	if t.Spec.Exec == nil {
		return strings.Join([]string{t.UID, t.Container, t.Kind.String()}, "/")
	}
	words := append([]string{t.UID, t.ContainerID, strconv.Itoa(int(t.Spec.TimeoutSeconds))}, t.Spec.Exec.Command...)
	return strings.Join(words, "\x00")
}

// Verdict is what a probe has decided about a container.
type Verdict struct {
	ContainerID string
	Result      Result
	Since       time.Time
	Message     string
}

// Schedule is the state of all probes of a node. Not safe for concurrent use.
type Schedule struct {
	pods  map[string]map[Key]*probe // by UID
	queue queue
	found int // probes that were found running
	began time.Time
}

type probe struct {
	Target
	verdict Verdict
	// run counts results equal to last, in a row.
	last  Result
	run   int
	due   time.Time
	index int // in the queue; -1 when not queued
	// held: a liveness or startup probe has failed for good; only a new
	// container is probed again.
	held     bool
	inFlight bool
}

// New makes an empty schedule of a prober that began at a time.
func New(began time.Time) *Schedule {
	return &Schedule{pods: map[string]map[Key]*probe{}, began: began}
}

// Restore sets verdicts of an earlier life, before any Update.
func (s *Schedule) Restore(key Key, v Verdict) {
	s.set(&probe{Target: Target{Key: key, ContainerID: v.ContainerID}, verdict: v, index: -1})
}

func (s *Schedule) set(p *probe) {
	if s.pods[p.UID] == nil {
		s.pods[p.UID] = map[Key]*probe{}
	}
	s.pods[p.UID][p.Key] = p
}

func (s *Schedule) probe(key Key) *probe { return s.pods[key.UID][key] }

// Update sets the probes of one pod. Probes that are no longer wanted go, with
// their verdicts; a probe whose container has changed starts over.
func (s *Schedule) Update(uid string, targets []Target, now time.Time) {
	wanted, phases := map[Key]bool{}, map[string]float64{}
	for _, t := range targets {
		wanted[t.Key] = true
		s.update(t, now, phases)
	}
	// Only now is it known which of them wait for a startup probe.
	for _, t := range targets {
		s.queueUnlessHeld(s.probe(t.Key))
	}
	for key, p := range s.pods[uid] {
		if !wanted[key] {
			s.unqueue(p)
			delete(s.pods[uid], key)
		}
	}
	if len(s.pods[uid]) == 0 {
		delete(s.pods, uid)
	}
}

// Current reports whether a target is probed still: its probe is wanted, of the same
// container.
func (s *Schedule) Current(t Target) bool {
	p := s.probe(t.Key)
	return p != nil && p.ContainerID == t.ContainerID
}

func (s *Schedule) update(t Target, now time.Time, phases map[string]float64) {
	p := s.probe(t.Key)
	switch {
	case p == nil:
		p = &probe{Target: t, index: -1}
		s.set(p)
	case p.ContainerID != t.ContainerID:
		s.unqueue(p)
		*p = probe{Target: t, index: -1}
	case p.Started.IsZero(): // restored
		p.Target = t
		p.held = t.Kind != Readiness && p.verdict.Result == Failure
	default:
		p.Target = t
		return
	}
	p.due = s.firstDue(t, now, phases)
}

// firstDue is when the initial delay is over. A container that is older than that is
// one that prober found running: its probes are spread over a period, less what prober
// may have needed to begin. All is reckoned from now, for the container's start time is
// of a clock that may be set.
func (s *Schedule) firstDue(t Target, now time.Time, phases map[string]float64) time.Time {
	delay, period := pod.Seconds(int64(t.Spec.InitialDelaySeconds)), periodOf(t)
	age := max(now.Sub(t.Started), 0)
	if age-delay < min(period, time.Second) {
		return now.Add(delay - age)
	}
	phase, ok := phases[t.Question()] // those that ask the same stay together
	if !ok {
		s.found++
		_, phase = math.Modf(float64(s.found) * golden)
		phases[t.Question()] = phase
	}
	return now.Add(time.Duration(phase * float64(period-s.late(now, period))))
}

// late is how much of the period after its start prober has needed to begin, or may yet, so
// that no probe comes later than a period after that start: pleg, which says what runs, may
// start at the same time. A part of the period is left in any case.
func (s *Schedule) late(now time.Time, period time.Duration) time.Duration {
	late := min(period/4, beginning)
	if took := now.Sub(s.began); took < starting {
		late = max(late, min(took, period*3/4))
	}
	return late
}

const (
	// beginning is how long prober needs at least.
	beginning = time.Second
	// starting is how long after its start what it finds running was waiting for it.
	starting = time.Minute
)

// golden spreads whole numbers more evenly over a circle than chance does: its
// multiples leave no two points much nearer to each other than the mean.
const golden = 0.6180339887498949

func periodOf(t Target) time.Duration {
	return pod.Seconds(int64(max(t.Spec.PeriodSeconds, 1)))
}

// queueUnlessHeld puts a probe in the queue if it may run: it is not held, not
// running, a startup probe is over, and the others wait for it.
func (s *Schedule) queueUnlessHeld(p *probe) {
	if p.held || p.inFlight || p.index >= 0 || !s.mayRun(p) {
		return
	}
	heap.Push(&s.queue, p)
}

func (s *Schedule) mayRun(p *probe) bool {
	startup := s.probe(Key{p.UID, p.Container, Startup})
	if p.Kind == Startup {
		return p.verdict.Result != Success
	}
	return startup == nil || startup.ContainerID == p.ContainerID && startup.verdict.Result == Success
}

func (s *Schedule) unqueue(p *probe) {
	if p.index >= 0 {
		heap.Remove(&s.queue, p.index)
	}
}

// Next is when the earliest probe is due; ok is false when none is.
func (s *Schedule) Next() (due time.Time, ok bool) {
	if len(s.queue) == 0 {
		return time.Time{}, false
	}
	return s.queue[0].due, true
}

// Due takes every probe that is due, in order. Each must be answered with Done.
func (s *Schedule) Due(now time.Time) []Target {
	var launch []Target
	for len(s.queue) > 0 && !s.queue[0].due.After(now) {
		p := heap.Pop(&s.queue).(*probe)
		p.inFlight = true
		one := p.Target
		one.Due = p.due
		// The next one keeps the rhythm; missed beats are not made up for.
		period := periodOf(p.Target)
		p.due = p.due.Add(period)
		if late := now.Sub(p.due); late > 0 {
			p.due = p.due.Add(late.Truncate(period) + period)
		}
		launch = append(launch, one)
	}
	return launch
}

// Done takes a probe's result and reports whether a verdict changed. A result of
// a container that is no longer the probe's is dropped.
func (s *Schedule) Done(t Target, result Result, message string, now time.Time) (changed bool) {
	p := s.probe(t.Key)
	if p == nil || p.ContainerID != t.ContainerID || !p.inFlight {
		return false
	}
	p.inFlight = false
	if result != Unknown {
		changed = p.count(result, message, now)
	}
	if changed && p.Kind == Startup && p.verdict.Result == Success {
		s.release(p, now)
	}
	s.queueUnlessHeld(p)
	return changed
}

// count applies the thresholds (v1.Probe), which the API server or config has
// given their defaults.
func (p *probe) count(result Result, message string, now time.Time) (changed bool) {
	if result != p.last {
		p.last, p.run = result, 0
	}
	p.run++
	threshold := max(p.Spec.SuccessThreshold, 1)
	if result == Failure {
		threshold = max(p.Spec.FailureThreshold, 1)
	}
	if p.run < int(threshold) {
		return false
	}
	if result == Failure && p.Kind != Readiness {
		p.held = true
	}
	if p.verdict.Result == result {
		return false
	}
	p.verdict = Verdict{ContainerID: p.ContainerID, Result: result, Since: now, Message: message}
	return true
}

// release lets the probes run that waited for a startup probe.
func (s *Schedule) release(startup *probe, now time.Time) {
	for _, kind := range []Kind{Liveness, Readiness} {
		if p := s.probe(Key{startup.UID, startup.Container, kind}); p != nil && p.ContainerID == startup.ContainerID {
			if p.due.Before(now) {
				p.due = now
			}
			s.queueUnlessHeld(p)
		}
	}
}

// Verdicts of one pod, in a fixed order. Probes that have decided nothing yet
// have none.
func (s *Schedule) Verdicts(uid string) map[Key]Verdict {
	all := map[Key]Verdict{}
	for key, p := range s.pods[uid] {
		if p.verdict.Result != Unknown {
			all[key] = p.verdict
		}
	}
	return all
}

// Keys sorts the keys of a set of verdicts.
func Keys(verdicts map[Key]Verdict) []Key { return slices.SortedFunc(maps.Keys(verdicts), Key.compare) }

// queue is a heap of probes by due time.
type queue []*probe

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].due.Equal(q[j].due) {
		return q[i].compare(q[j].Key) < 0
	}
	return q[i].due.Before(q[j].due)
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i]; q[i].index, q[j].index = i, j }
func (q *queue) Push(x any)   { p := x.(*probe); p.index = len(*q); *q = append(*q, p) }
func (q *queue) Pop() any {
	old := *q
	p := old[len(old)-1]
	p.index = -1
	*q = old[:len(old)-1]
	return p
}
