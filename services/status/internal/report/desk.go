// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/status/internal/history"
	"github.com/sextant-node/sextant/services/status/internal/plan"
)

const (
	// settle is how long a status that is likely to change again waits for that. An
	// ordinary start is over by then: a write in the midst of it would only keep the
	// one that tells it waiting, which of one pod go one after the other.
	settle = 500 * time.Millisecond
	// starting is how long a status is held back until all containers of the pod run.
	starting = 5 * time.Second
	// ending is how long a status of a pod that is being deleted is held back until the pod has
	// its final phase, so that one write reports both. (A kubelet syncs all statuses as often.)
	ending = 10 * time.Second
	// classLead is the head start of each class over the next: urgent writes go
	// first, and nothing waits for ever.
	classLead = 500 * time.Millisecond
	// echoLimit is how long the answer to a write is believed although config lists
	// otherwise: no mirror that was made here, or an object that is gone.
	echoLimit = 30 * time.Second
)

// waits are how long a write of a class is held back, in case a later status replaces it.
var waits = map[plan.Class]time.Duration{plan.Settling: settle, plan.Starting: starting, plan.Ending: ending}

// The waits of one pod whose write fails: refused, and in trouble (as often as a kubelet
// tries all of its pods).
var (
	refusedRetries  = backoff.Doubling{Least: time.Second, Most: 30 * time.Second}
	troubledRetries = backoff.Doubling{Least: time.Second, Most: 10 * time.Second}
)

// Desk holds what is to be written, by key: the UID of a pod of the API server,
// namespace/name of a static pod. Safe for concurrent use.
type Desk struct {
	now     func() time.Time
	wake    signal.Signal
	settled func(key string)

	mu      sync.Mutex
	entries map[string]*entry
	pending map[string]*entry // those of entries with something to write, or a write under way
}

type entry struct {
	key    string
	pod    plan.Pod
	static *plan.Static
	// ended: podworker no longer has the pod whose status is static.Last. That status is tried to
	// be written once before the mirror pod is deleted.
	ended bool

	object  *plan.Object
	listed  history.Listed // of config
	created time.Time      // when object was made here, until config lists it
	goneAt  time.Time      // when object was answered to be gone, if it is

	action    plan.Action
	since     time.Time // when there began to be something as urgent to write
	asked     time.Time // the first try that the API server has not settled
	notBefore time.Time
	busy      bool
	dropped   bool // to be forgotten when the write under way is answered
	tries     int
	silent    int // tries without an answer
	undone    undone
	err       string
}

// undone is a status that the API server accepted and does not show: it knows no such
// field, or an admission webhook changes it.
type undone struct {
	status *v1.PodStatus // nil for none
	tries  int
	until  time.Time // not sent again before
}

// NewDesk makes an empty desk. settled is called with each key whose write was answered.
func NewDesk(now func() time.Time, settled func(key string)) *Desk {
	return &Desk{now: now, settled: settled, wake: signal.New(), entries: map[string]*entry{}, pending: map[string]*entry{}}
}

// SetPod says what is known of a pod of the API server. p.Object is as config lists
// it, nil when config does not; or what Object answered, while config cannot say.
func (d *Desk) SetPod(key string, p plan.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entry(key)
	switch p.Object {
	case nil:
		e.object = nil
	case e.object:
	default:
		d.lapse(e)
		e.object = e.weigh(p.Object, &e.listed)
	}
	e.pod, e.static = p, nil
	d.evaluate(e)
}

// SetStatic says what is known of a static pod. s.Mirror is as config has it.
func (d *Desk) SetStatic(key string, s plan.Static) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entry(key)
	switch {
	case s.Mirror != nil:
		d.lapse(e)
		e.object = e.weigh(s.Mirror, &e.listed)
		if e.object.UID == s.Mirror.UID {
			e.created = time.Time{}
		}
	case s.MirrorKnown && (e.created.IsZero() || d.now().Sub(e.created) > echoLimit):
		e.object, e.created = nil, time.Time{}
	}
	e.ended = false
	if was := e.static; was != nil && was.Last != nil && s.Last == nil && s.Ends() && was.Mirror != nil && was.Mirror.UID == s.Mirror.UID {
		s.Last, e.ended = was.Last, true
	}
	e.static = &s
	d.evaluate(e)
}

// Newest is the later of what is known of an object and what config lists of it. Either
// may be nil.
func (d *Desk) Newest(key string, got *plan.Object) *plan.Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[key]
	switch {
	case !ok || e.object == nil || e.object.Gone:
		return got
	case got == nil:
		return e.object
	}
	listed := e.listed
	return e.weigh(got, &listed)
}

// lapse ends the belief that an object is gone that config goes on listing.
func (d *Desk) lapse(e *entry) {
	if e.object != nil && e.object.Gone && d.now().Sub(e.goneAt) > echoLimit {
		e.object = nil
	}
}

// weigh is the later of the entry's view and what config lists, which is noted. An object that
// is gone stays gone if config lists a later version of it: the API server sets the grace
// period of a pod to 0, which makes a version, before it deletes the pod.
func (e *entry) weigh(got *plan.Object, listed *history.Listed) *plan.Object {
	if e.object == nil {
		listed.News("", got.Version, 0)
		return got
	}
	if listed.News("", got.Version, e.object.Version) && !(e.object.Gone && e.object.UID == got.UID) {
		return got
	}
	return e.object
}

func (d *Desk) entry(key string) *entry {
	e, ok := d.entries[key]
	if !ok {
		e = &entry{key: key}
		d.entries[key] = e
	}
	e.dropped = false
	return e
}

// Drop forgets a key.
func (d *Desk) Drop(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.entries[key]; ok && e.busy {
		e.dropped = true
		return
	}
	d.forget(key)
}

func (d *Desk) forget(key string) {
	delete(d.entries, key)
	delete(d.pending, key)
}

// Object is the newest view of the API server's object, nil for none.
func (d *Desk) Object(key string) *plan.Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.entries[key]; ok && e.object != nil && !e.object.Gone {
		return e.object
	}
	return nil
}

// State reports whether the API server has what should be there, as far as it takes it,
// and the last error.
func (d *Desk) State(key string) (reported bool, err string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[key]
	if !ok {
		return false, ""
	}
	told := e.action.Kind != plan.Patch || e.stays(e.undone.status)
	return e.object != nil && !e.object.Gone && told && !e.busy, e.err
}

// Pending is how many keys have something to write.
func (d *Desk) Pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.pending)
}

// evaluate asks for the next write of an entry; d.mu is held.
func (d *Desk) evaluate(e *entry) {
	if e.busy {
		return
	}
	before := e.action
	if e.static != nil {
		s := *e.static
		s.Mirror, s.Ignored = e.object, e.undone.status
		// A mirror that config has not listed yet is not to be made twice.
		e.action = s.Next()
	} else {
		p := e.pod
		p.Object, p.Ignored = e.object, e.undone.status
		e.action = p.Next()
	}
	if e.action.Kind != plan.Delete && e.action.Kind != plan.DeleteMirror && !e.stays(e.undone.status) {
		e.undone = undone{}
	}
	if e.action.Kind == plan.None {
		e.settle()
		e.err = ""
		delete(d.pending, e.key)
		return
	}
	if e.since.IsZero() || e.action.Class < before.Class {
		e.since = d.now()
	}
	d.pending[e.key] = e
	d.poke()
}

func (d *Desk) poke() {
	d.wake.Send()
}

// Job is one write on its way.
type Job struct {
	Key    string
	Action plan.Action
	// Since is when the write was due: when the change was seen, plus the wait of its class.
	Since time.Time
	// Asked is the first try of this object that was neither accepted nor refused:
	// this one, or an earlier one.
	Asked time.Time
	// from is the version that Action was made from.
	from uint64
}

// Take hands out the most urgent of the writes with the fewest failures, and marks its
// pod busy; while the API server is away, of those asked for the fewest times. Without
// one it says how long until the next, 0 for: nothing is due before something changes.
func (d *Desk) Take(away bool) (job Job, ok bool, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	best, fewest := "", 0
	var bestScore, next time.Time
	for key, e := range d.pending {
		if e.busy {
			continue
		}
		if due := e.due(); due.After(now) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		score, tries := e.since.Add(time.Duration(e.action.Class)*classLead), e.tries
		if away {
			tries = e.silent
		}
		if best == "" || cmp.Or(cmp.Compare(tries, fewest), score.Compare(bestScore), cmp.Compare(key, best)) < 0 {
			best, fewest, bestScore = key, tries, score
		}
	}
	if best == "" {
		if next.IsZero() {
			return Job{}, false, 0
		}
		return Job{}, false, max(next.Sub(now), time.Millisecond)
	}
	e := d.entries[best]
	e.busy = true
	if e.asked.IsZero() {
		e.asked = now
	}
	job = Job{Key: best, Action: e.action, Since: e.since.Add(waits[e.action.Class]), Asked: e.asked}
	if e.object != nil {
		job.from = e.object.Version
	}
	return job, true, 0
}

func (e *entry) due() time.Time {
	due := e.since.Add(waits[e.action.Class])
	if e.notBefore.After(due) {
		due = e.notBefore
	}
	if e.action.Kind == plan.Patch && e.undone.until.After(due) {
		due = e.undone.until
	}
	return due
}

// stays reports whether the next write is a patch to that status, nil for none.
func (e *entry) stays(status *v1.PodStatus) bool {
	return status != nil && e.action.Kind == plan.Patch && podstatus.Equal(status, e.action.Status)
}

// Done folds the answer to a write in. object is what the API server answered
// with, if it did.
func (d *Desk) Done(job Job, object *plan.Object, outcome Outcome, err error) {
	d.mu.Lock()
	e, ok := d.entries[job.Key]
	if ok && e.dropped {
		d.forget(job.Key)
	} else if ok {
		e.busy = false
		d.fold(e, job, object, outcome)
		e.err = ""
		if err != nil {
			e.err = err.Error()
		}
		kept := e.err
		d.evaluate(e)
		if outcome == Accepted && e.stays(job.Action.Status) {
			tries := e.undone.tries + 1
			e.undone = undone{job.Action.Status, tries, d.now().Add(refusedRetries.After(tries))}
			d.evaluate(e) // for a pod that only waits for this, its end
		}
		if kept != "" && e.action.Kind != plan.None {
			e.err = kept
		}
	}
	d.mu.Unlock()
	d.poke()
	if d.settled != nil {
		d.settled(job.Key)
	}
}

func (d *Desk) fold(e *entry, job Job, object *plan.Object, outcome Outcome) {
	switch outcome {
	case Accepted:
		e.settle()
		switch job.Action.Kind {
		case plan.Delete, plan.DeleteMirror:
			e.gone(job.Action.UID, d.now())
		case plan.CreateMirror:
			e.object, e.created = object, d.now()
		default:
			// A version that is not higher than the one before the write is of another
			// history, in which all that was known before is void.
			if e.object != nil && e.object.UID == object.UID && (object.Version > e.object.Version || object.Version <= job.from) {
				e.object = object
			}
		}
	case Missing:
		e.settle()
		e.gone(job.Action.UID, d.now())
	case Refused:
		e.asked, e.silent = time.Time{}, 0
		e.backOff(d.now(), refusedRetries)
		e.giveUp(job)
	case Troubled:
		e.backOff(d.now(), troubledRetries)
		e.giveUp(job)
	case Unreachable:
		e.silent++
	}
}

// giveUp drops the last status of a pod that podworker no longer has, after a failed try to
// write it: the mirror pod is deleted without it.
func (e *entry) giveUp(job Job) {
	if e.ended && job.Action.Kind == plan.Patch {
		e.static.Last, e.ended = nil, false
		e.settle()
	}
}

// settle forgets the tries of a write that is over.
func (e *entry) settle() {
	e.since, e.asked, e.notBefore, e.tries, e.silent = time.Time{}, time.Time{}, time.Time{}, 0, 0
}

// backOff puts the next try off.
func (e *entry) backOff(now time.Time, retries backoff.Doubling) {
	e.tries++
	e.notBefore = now.Add(retries.After(e.tries))
}

// gone notes that the object of that UID is no more.
func (e *entry) gone(uid types.UID, now time.Time) {
	if e.object != nil && e.object.UID == uid {
		gone := *e.object
		gone.Gone = true
		e.object, e.created, e.goneAt = &gone, time.Time{}, now
	}
}
