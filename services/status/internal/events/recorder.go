package events

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/service"
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
	// maxQueue bounds what waits for the API server.
	maxQueue = 5000
	// maxTries bounds how often an event is offered to an API server that answers.
	maxTries   = 12
	backoffMin = 200 * time.Millisecond
	backoffMax = 10 * time.Second
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
	wake       chan struct{}

	mu      sync.Mutex
	queue   []queued
	dropped int
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
		deps: deps, wake: make(chan struct{}, 1),
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{Clock: clock.RealClock{}}),
	}
}

// Add queues events of a feed, oldest first; revision is where the feed is then.
func (r *Recorder) Add(name string, revision feed.Revision, keys []string, events []*eventv1.Event) {
	r.mu.Lock()
	for i, e := range events {
		r.queue = append(r.queue, queued{id: ID{name, revision.Epoch, keys[i]}, event: e})
	}
	r.queue = append(r.queue, queued{id: ID{Feed: name}, revision: revision})
	if over := len(r.queue) - maxQueue; over > 0 {
		r.queue = append([]queued(nil), r.queue[over:]...)
		r.dropped += over
	}
	r.mu.Unlock()
	r.Look()
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
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run records until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		name, mode := r.deps.Node()
		next, ok := queued{}, false
		if mode != Wait {
			next, ok = r.pop()
		}
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-r.wake:
			}
			continue
		}
		switch {
		case next.event == nil:
			r.deps.Save(next.id.Feed, next.revision)
		case mode == Record:
			r.record(ctx, Convert(next.id, next.event, name, time.Now()))
		}
		select {
		case <-ctx.Done():
			return nil
		default:
		}
	}
}

func (r *Recorder) pop() (queued, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped > 0 {
		r.deps.Log.Warn("events dropped: the API server is away for long", "events", r.dropped)
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

// record writes one event, or what the correlator makes of it. An API server that is
// away is waited for; one that refuses is obeyed.
func (r *Recorder) record(ctx context.Context, event *v1.Event) {
	result, err := r.correlator.EventCorrelate(event)
	if err != nil {
		r.deps.Log.Warn("event not correlated", "reason", event.Reason, service.KeyError, err.Error())
	}
	if result == nil || result.Skip {
		return
	}
	update := result.Event.Count > 1
	for tries, away := 0, 0; tries < maxTries; {
		if err := r.deps.Limiter.Wait(ctx); err != nil {
			return
		}
		answered, err := r.write(ctx, result, update)
		switch verdict(err) {
		case done:
			if answered != nil {
				r.correlator.UpdateState(answered)
			}
			return
		case fresh:
			update = false
			result.Event.ResourceVersion = ""
			continue
		case refused:
			r.deps.Log.Warn("event refused", "reason", event.Reason, "object", event.InvolvedObject.Name, service.KeyError, err.Error())
			return
		case troubled:
			tries++
		case absent:
			r.deps.Log.Debug("event waits for the API server", "reason", event.Reason, service.KeyError, err.Error())
		}
		wait := min(backoffMin<<min(away, 8), backoffMax)
		away++
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + time.Duration(rand.Int64N(int64(wait)))):
		}
	}
}

func (r *Recorder) write(ctx context.Context, result *record.EventCorrelateResult, update bool) (*v1.Event, error) {
	if err := fault.Hit(ctx, "status.event"); err != nil {
		return nil, err
	}
	if update {
		return r.deps.API.PatchEvent(ctx, result.Event.Namespace, result.Event.Name, result.Patch)
	}
	return r.deps.API.CreateEvent(ctx, result.Event)
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
	status, ok := err.(apierrors.APIStatus) //nolint:errorlint // client-go returns it bare
	if !ok {
		return absent
	}
	switch code := status.Status().Code; {
	case code == http.StatusNotFound && status.Status().Details != nil && status.Status().Details.Kind == "events":
		return fresh
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError, code == http.StatusUnauthorized:
		return troubled
	}
	return refused
}
