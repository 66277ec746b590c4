// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/apianswer"
	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

// API is what is asked of the API server.
type API interface {
	CreateEvent(ctx context.Context, event *v1.Event) (*v1.Event, error)
	PatchEvent(ctx context.Context, namespace, name string, body []byte) (*v1.Event, error)
}

// Limiter bounds the rate of writes (eventRecordQPS, eventBurst).
type Limiter interface {
	Wait(ctx context.Context) error
}

// Mode says what becomes of events now.
type Mode int

// The modes.
const (
	// Wait: it is not known yet who the node is.
	Wait Mode = iota
	// Record at the API server.
	Record
	// Discard: standalone.
	Discard
)

const (
	// maxQueue bounds what waits for the API server; when there is more, thinned is left.
	maxQueue, thinned = 5000, 4500
	// maxTries bounds how often an event is offered to an API server that answers.
	maxTries = 12
	// timeout of one try. What comes later of it is the same event, by its name.
	timeout = 10 * time.Second
)

// Deps of a recorder.
type Deps struct {
	API     API
	Limiter Limiter
	// Node is the node's name, and what to do.
	Node func() (name string, mode Mode)
	// Save remembers how far a feed was recorded.
	Save func(feed string, revision feed.Revision)
	Log  *slog.Logger
}

// Recorder records. Safe for concurrent use.
type Recorder struct {
	deps       Deps
	correlator *record.EventCorrelator
	wake       signal.Signal
	aside      aside // Run's goroutine only

	mu      sync.Mutex
	queue   []queued
	dropped int
	heard   heard
}

// queued is an event, or the mark that all of a feed up to a revision was queued.
type queued struct {
	id       ID
	event    *eventv1.Event
	revision feed.Revision
}

// New makes a recorder; Run works.
func New(deps Deps) *Recorder {
	return &Recorder{
		deps: deps, wake: signal.New(), aside: aside{marks: map[string]feed.Revision{}},
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{Clock: clock.RealClock{}}),
	}
}

// Add queues events of a feed, oldest first; revision is where the feed is then.
func (r *Recorder) Add(name string, revision feed.Revision, keys []string, events []*eventv1.Event) {
	r.mu.Lock()
	for i, e := range events {
		epoch, key := feed.EventID(revision.Epoch, keys[i])
		id := ID{name, epoch, key}
		if e.GetKey() != "" { // the same in every epoch
			id = ID{Feed: name, Key: e.GetKey()}
		} else if r.heard.again(id, time.Now()) {
			continue
		}
		r.queue = append(r.queue, queued{id: id, event: e})
	}
	r.queue = append(r.queue, queued{id: ID{Feed: name}, revision: revision})
	if before := len(r.queue); before > maxQueue {
		r.queue = thin(r.queue, thinned)
		r.dropped += before - len(r.queue)
	}
	r.mu.Unlock()
	r.Look()
}

// object is what an event is about.
type object struct{ kind, namespace, name string }

// telling is what an event tells: those that tell the same become one with a count.
type telling struct {
	object
	path, kind, reason, message string
}

func tellingOf(e *eventv1.Event) telling {
	o := e.GetObject()
	return telling{object{o.GetKind(), o.GetNamespace(), o.GetName()}, o.GetFieldPath(), e.GetType(), e.GetReason(), e.GetMessage()}
}

// thin shortens a queue to most entries. Events that a later one repeats are dropped first: only
// the count becomes too low. If that is not enough, it drops, one by one, the oldest event of the
// object with the most events, so that no object loses events because of another. Marks count
// as the events of one object; the next mark of a feed replaces one that was dropped.
func thin(queue []queued, most int) []queued {
	again := map[telling]int{}
	for _, q := range queue {
		again[tellingOf(q.event)]++
	}
	var objects []object // by age
	waiting := map[object]int{}
	left := make([]queued, 0, len(queue))
	for _, q := range queue {
		tells := tellingOf(q.event)
		if again[tells]--; again[tells] > 0 && q.event != nil {
			continue
		}
		if waiting[tells.object] == 0 {
			objects = append(objects, tells.object)
		}
		waiting[tells.object]++
		left = append(left, q)
	}
	drop := map[object]int{}
	for range len(left) - most {
		loudest := objects[0]
		for _, o := range objects {
			if waiting[o]-drop[o] > waiting[loudest]-drop[loudest] {
				loudest = o
			}
		}
		drop[loudest]++
	}
	return slices.DeleteFunc(left, func(q queued) bool {
		o := tellingOf(q.event).object
		drop[o]--
		return drop[o] >= 0
	})
}

// Emit queues one event of this process itself.
func (r *Recorder) Emit(id ID, e *eventv1.Event) {
	r.mu.Lock()
	r.queue = append(r.queue, queued{id: id, event: e})
	r.mu.Unlock()
	r.Look()
}

// Look says that the mode may have changed.
func (r *Recorder) Look() {
	r.wake.Send()
}

// Run records until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		name, mode := r.deps.Node()
		wait := r.step(ctx, name, mode)
		if ctx.Err() != nil {
			return nil
		}
		if wait == 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// step does the next thing, and says how long there is nothing more to do, unless
// something changes.
func (r *Recorder) step(ctx context.Context, name string, mode Mode) time.Duration {
	now := time.Now()
	switch mode {
	case Wait:
		return math.MaxInt64
	case Discard:
		r.aside.events = nil
		for name := range r.aside.marks {
			r.release(name)
		}
	case Record:
		if wait := r.aside.pause.Sub(now); wait > 0 {
			return wait
		}
		if p := r.aside.take(now, r.waiting()); p != nil {
			r.try(ctx, p)
			return 0
		}
	}
	next, ok := r.pop()
	switch {
	case !ok:
		return r.aside.next(now)
	case next.event == nil && r.aside.holds(next.id.Feed):
		r.aside.marks[next.id.Feed] = next.revision
	case next.event == nil:
		r.deps.Save(next.id.Feed, next.revision)
	case mode == Record:
		if p := r.correlate(next.id, Convert(next.id, next.event, name, now)); p != nil {
			r.try(ctx, p)
		}
	}
	return 0
}

// waiting reports whether something is in the queue.
func (r *Recorder) waiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue) > 0
}

func (r *Recorder) pop() (queued, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped > 0 {
		r.deps.Log.Warn("events dropped: the API server is away for long, or they come faster than it takes them", "events", r.dropped)
		r.dropped = 0
	}
	if len(r.queue) == 0 {
		r.queue = nil
		return queued{}, false
	}
	next := r.queue[0]
	r.queue[0] = queued{}
	r.queue = r.queue[1:]
	return next, true
}

// correlate makes of an event what is to be recorded; nil for nothing. One that has a
// key, and so no epoch, is no repeat of another: it is created, or there already.
func (r *Recorder) correlate(id ID, event *v1.Event) *pending {
	if id.Epoch == "" {
		return &pending{feed: id.Feed, result: &record.EventCorrelateResult{Event: event}, asked: time.Now()}
	}
	result, err := r.correlator.EventCorrelate(event)
	if err != nil {
		r.deps.Log.Warn("event not correlated", "reason", event.Reason, service.KeyError, err.Error())
	}
	if result == nil || result.Skip {
		return nil
	}
	return &pending{feed: id.Feed, result: result, update: result.Event.Count > 1, asked: time.Now()}
}

// try writes one event. An API server that is away is waited for; one that refuses is
// obeyed; an event that it fails at is set aside, and given up after maxTries.
func (r *Recorder) try(ctx context.Context, p *pending) {
	if err := r.deps.Limiter.Wait(ctx); err != nil {
		return
	}
	answered, err := r.write(ctx, p)
	given := verdict(err)
	if given == fresh {
		p.update, p.result.Event.ResourceVersion = false, ""
		answered, err = r.write(ctx, p)
		given = verdict(err)
	}
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	own := r.aside.reached.After(p.asked) // others are answered
	switch given {
	case done:
		if answered != nil {
			r.correlator.UpdateState(answered)
		}
		r.aside.settled(now)
	case fresh, refused:
		r.log(p, "event refused", err)
		r.aside.settled(now)
	case troubled, absent:
		if given == troubled || own {
			p.tries++
		}
		if p.tries < maxTries {
			r.deps.Log.Debug("event waits", "reason", p.result.Event.Reason, service.KeyError, err.Error())
			if p = r.aside.put(p, own, now); p == nil {
				return
			}
		}
		r.log(p, "event given up", err)
	}
	if !r.aside.holds(p.feed) {
		r.release(p.feed)
	}
}

func (r *Recorder) log(p *pending, what string, err error) {
	r.deps.Log.Warn(what, "reason", p.result.Event.Reason, "object", p.result.Event.InvolvedObject.Name, service.KeyError, err.Error())
}

// release saves how far a feed was recorded, once no event of it is aside.
func (r *Recorder) release(name string) {
	if revision, ok := r.aside.marks[name]; ok {
		delete(r.aside.marks, name)
		r.deps.Save(name, revision)
	}
}

func (r *Recorder) write(ctx context.Context, p *pending) (*v1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := fault.Hit(ctx, "status.event"); err != nil {
		return nil, err
	}
	if p.update {
		return r.deps.API.PatchEvent(ctx, p.result.Event.Namespace, p.result.Event.Name, p.result.Patch)
	}
	return r.deps.API.CreateEvent(ctx, p.result.Event)
}

// what is to be done after an answer.
type answer int

const (
	done answer = iota
	// fresh: what was to be counted up is gone (events expire): create it.
	fresh
	// refused for good.
	refused
	// troubled: it answered, and may take it later.
	troubled
	// absent: no answer.
	absent
)

func verdict(err error) answer {
	if err == nil || apierrors.IsAlreadyExists(err) {
		return done
	}
	status, answered := apianswer.Of(err)
	if !answered {
		return absent
	}
	switch code := status.Code; {
	case code == http.StatusNotFound && status.Details != nil && status.Details.Kind == "events":
		return fresh
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError, code == http.StatusUnauthorized:
		return troubled
	}
	return refused
}
