package report

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/services/status/internal/plan"
)

const (
	// settle is how long a status that is likely to change again waits for that. An
	// ordinary start is over by then: a write in the midst of it would only keep the
	// one that tells it waiting, which of one pod go one after the other.
	settle = 500 * time.Millisecond
	// classLead is the head start of each class over the next: urgent writes go
	// first, and nothing waits for ever.
	classLead = 500 * time.Millisecond
	// echoLimit is how long a mirror that was made here is believed in although
	// config does not list it.
	echoLimit = 30 * time.Second
	// Back-off of one pod whose write is refused.
	refusedMin, refusedMax = time.Second, 30 * time.Second
)

// Desk holds what is to be written, by key: the UID of a pod of the API server,
// namespace/name of a static pod. Safe for concurrent use.
type Desk struct {
	now     func() time.Time
	wake    chan struct{}
	settled func(key string)

	mu      sync.Mutex
	entries map[string]*entry
}

type entry struct {
	pod    plan.Pod
	static *plan.Static

	object  *plan.Object
	created time.Time // when object was made here, until config lists it

	action    plan.Action
	since     time.Time // when there began to be something to write
	notBefore time.Time
	busy      bool
	dropped   bool // to be forgotten when the write under way is answered
	tries     int
	err       string
}

// NewDesk makes an empty desk. settled hears of each key whose write was answered.
func NewDesk(now func() time.Time, settled func(key string)) *Desk {
	return &Desk{now: now, settled: settled, wake: make(chan struct{}, 1), entries: map[string]*entry{}}
}

// SetPod says what is known of a pod of the API server. p.Object is as config has
// it, nil when config does not list the pod.
func (d *Desk) SetPod(key string, p plan.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entry(key)
	if p.Object == nil {
		e.object = nil
	} else {
		e.object = newer(e.object, p.Object)
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
		e.object = newer(e.object, s.Mirror)
		if e.object.UID == s.Mirror.UID {
			e.created = time.Time{}
		}
	case s.MirrorKnown && (e.created.IsZero() || d.now().Sub(e.created) > echoLimit):
		e.object, e.created = nil, time.Time{}
	}
	e.static = &s
	d.evaluate(e)
}

// Newest is the later of what is known of an object and another view of it. Either
// may be nil.
func (d *Desk) Newest(key string, got *plan.Object) *plan.Object {
	have := d.Object(key)
	if got == nil {
		return have
	}
	return newer(have, got)
}

// newer is the later of two views of an object. Deletion marks stay.
func newer(have, got *plan.Object) *plan.Object {
	switch {
	case have == nil || (got.Version > have.Version):
		return got
	case have.UID == got.UID && got.Deleting && !have.Deleting:
		merged := *have
		merged.Deleting = true
		return &merged
	}
	return have
}

func (d *Desk) entry(key string) *entry {
	e, ok := d.entries[key]
	if !ok {
		e = &entry{}
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
	delete(d.entries, key)
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

// State tells whether the API server has what should be there, and the last error.
func (d *Desk) State(key string) (reported bool, err string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[key]
	if !ok {
		return false, ""
	}
	return e.object != nil && !e.object.Gone && e.action.Kind != plan.Patch && !e.busy, e.err
}

// Pending is how many keys have something to write.
func (d *Desk) Pending() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		if e.busy || e.action.Kind != plan.None {
			n++
		}
	}
	return n
}

// evaluate asks for the next write of an entry; d.mu is held.
func (d *Desk) evaluate(e *entry) {
	if e.busy {
		return
	}
	if e.static != nil {
		s := *e.static
		s.Mirror = e.object
		// A mirror that config has not listed yet is not to be made twice.
		e.action = s.Next()
	} else {
		p := e.pod
		p.Object = e.object
		e.action = p.Next()
	}
	switch {
	case e.action.Kind == plan.None:
		e.since, e.err, e.tries, e.notBefore = time.Time{}, "", 0, time.Time{}
	case e.since.IsZero():
		e.since = d.now()
	}
	if e.action.Kind != plan.None {
		d.poke()
	}
}

func (d *Desk) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Job is one write on its way.
type Job struct {
	Key    string
	Action plan.Action
	// Since is when there began to be something to write.
	Since time.Time
}

// Take hands out the most urgent write, and marks its pod busy. Without one it
// tells how long until the next, 0 for: nothing is due before something changes.
func (d *Desk) Take() (job Job, ok bool, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	best := ""
	var bestScore, next time.Time
	for key, e := range d.entries {
		if e.busy || e.action.Kind == plan.None {
			continue
		}
		if due := e.due(); due.After(now) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		score := e.since.Add(time.Duration(e.action.Class) * classLead)
		if best == "" || score.Before(bestScore) || (score.Equal(bestScore) && key < best) {
			best, bestScore = key, score
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
	return Job{Key: best, Action: e.action, Since: e.since}, true, 0
}

func (e *entry) due() time.Time {
	due := e.since
	if e.action.Class == plan.Settling {
		due = due.Add(settle)
	}
	if e.notBefore.After(due) {
		due = e.notBefore
	}
	return due
}

// Done folds the answer to a write in. object is what the API server answered
// with, if it did.
func (d *Desk) Done(job Job, object *plan.Object, outcome Outcome, err error) {
	d.mu.Lock()
	e, ok := d.entries[job.Key]
	if ok && e.dropped {
		delete(d.entries, job.Key)
	} else if ok {
		e.busy = false
		d.fold(e, job, object, outcome)
		e.err = ""
		if err != nil {
			e.err = err.Error()
		}
		kept := e.err
		d.evaluate(e)
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
		e.since, e.tries, e.notBefore = time.Time{}, 0, time.Time{}
		switch job.Action.Kind {
		case plan.Delete, plan.DeleteMirror:
			e.gone(job.Action.UID)
		case plan.CreateMirror:
			e.object, e.created = object, d.now()
		default:
			if e.object != nil && object != nil && e.object.UID == object.UID {
				e.object = newer(e.object, object)
			}
		}
	case Missing:
		e.since = time.Time{}
		e.gone(job.Action.UID)
	case Refused:
		e.notBefore = d.now().Add(min(refusedMin<<min(e.tries, 10), refusedMax))
		e.tries++
	case Unreachable:
	}
}

// gone notes that the object of that UID is no more.
func (e *entry) gone(uid types.UID) {
	if e.object != nil && e.object.UID == uid {
		gone := *e.object
		gone.Gone = true
		e.object, e.created = &gone, time.Time{}
	}
}
