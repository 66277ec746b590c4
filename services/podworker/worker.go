package podworker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// retryPeriod is how soon pleg is asked again, and the disk tried again, after
// a failure.
const retryPeriod = time.Second

// worker sees to one pod: gather, decide, act, publish, and again when woken.
// But for wake, inbox and published its fields belong to its goroutine.
type worker struct {
	l   *loop
	uid types.UID
	// identity is the pod with no more than its names, once known.
	identity *v1.Pod
	wake     chan struct{}

	mu    sync.Mutex
	inbox []func()

	// Guarded by loop.mu.
	published, heedsResources, heedsObjects bool
	outward                                 seenBy

	facts    step.Facts
	accepted *v1.Pod
	source   string
	acceptID uint64 // fingerprint and generation of what accepted was made from
	packed   []byte // accepted as it is kept and published
	// dressed is the pod that config lists with the resources that are allocated.
	dressed struct {
		from, pod *v1.Pod
		sizes     string
	}
	logged  map[string]int
	flights map[step.Key]*flight

	// saved is the record on the disk; saving tells that one is being written.
	saved    step.Facts
	written  string
	saving   bool
	saveTry  time.Time
	failures int

	// acts and creates count what was done to the runtime, and that the pod was
	// called finished; the others are how many of them the record has seen.
	acts, creates, actsSeen, createsSeen uint64
	refreshing, refreshAgain             bool
	refreshError                         string
	refreshTry                           time.Time
	refreshed                            mark
	record                               *observe.Record // of the last refresh
	asked                                map[step.Kind]mark
	messages                             map[string]*podworkerv1.ContainerMessage
	claimed                              string
	finished                             bool // the API server has it so
	// born is when the worker was made; counted: the pod's start was counted;
	// leftover: the pod is known by nothing but what it left on the disk.
	born              time.Time
	counted, leftover bool
	// doing and done are what the worker does now, and did last.
	doing, done span
}

func newWorker(l *loop, uid types.UID, record journal.Record, kept bool, found *v1.Pod) *worker {
	w := &worker{
		l: l, uid: uid, identity: found, wake: make(chan struct{}, 1), flights: map[step.Key]*flight{},
		asked: map[step.Kind]mark{}, messages: map[string]*podworkerv1.ContainerMessage{},
	}
	if kept || !l.journal.Intact && !l.complete {
		// An earlier life of this process may have made something that the record
		// does not show yet. Where the journal is whole and does not know the pod,
		// or the node was looked through before, it has not.
		w.acts, w.creates = 1, 1
	}
	if kept {
		w.facts, w.source, w.packed = record.Facts, record.Source, record.Pod
		w.saved = w.facts
		p, err := record.Decode()
		if err != nil {
			l.log.Error("journaled pod is of no use", service.KeyUID, string(uid), service.KeyError, err.Error())
		}
		w.accepted = p
		w.identity = &v1.Pod{}
		w.identity.Name, w.identity.Namespace, w.identity.UID = record.Name, record.Namespace, uid
		if s := w.facts.State; s == step.Syncing || s == step.Terminating || s == step.Terminated {
			w.claimed = pod.FullName(w.identity)
			if _, taken := l.claims[w.claimed]; !taken { // l.mu is held
				l.claims[w.claimed] = uid
			}
		}
	}
	w.born, w.leftover = l.clock.Now(), found != nil
	w.poke()
	return w
}

// poke wakes the worker; several pokes are one.
func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// post has f run in the worker's goroutine.
func (w *worker) post(f func()) {
	w.mu.Lock()
	w.inbox = append(w.inbox, f)
	w.mu.Unlock()
	w.poke()
}

func (w *worker) run(ctx context.Context) {
	defer w.stop()
	timer := w.l.clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C():
		}
		w.mu.Lock()
		inbox := w.inbox
		w.inbox = nil
		w.mu.Unlock()
		for _, f := range inbox {
			f()
		}
		at, forgotten := w.turn(ctx)
		if forgotten {
			w.l.retire(w)
			return
		}
		wait := time.Hour
		if !at.IsZero() {
			wait = max(at.Sub(w.l.clock.Now()), 0)
		}
		if !timer.Stop() {
			select {
			case <-timer.C():
			default:
			}
		}
		timer.Reset(wait)
		if !at.IsZero() && !w.l.clock.Now().Before(at) {
			w.poke() // the time came while the timer was being set
		}
	}
}

// stop ends what is under way when the process stops.
func (w *worker) stop() {
	for _, f := range w.flights {
		f.cancel()
	}
}

// turn is one round. It returns when to come round again at the latest.
func (w *worker) turn(ctx context.Context) (at time.Time, forgotten bool) {
	began := w.l.clock.Now()
	in := w.gather()
	plan := step.Step(in)
	w.rounds(&in, &plan)
	if ctx.Err() != nil {
		return time.Time{}, false
	}
	if plan.Forget {
		return w.forget(ctx)
	}
	if !w.keep(ctx, &plan) {
		return w.saveTry, false
	}
	w.facts = plan.Facts
	if plan.Again {
		w.counted = false
		w.l.metrics.restarted.WithLabelValues(staticLabel(w.accepted)).Inc()
		w.poke()
	}
	for _, e := range plan.Events {
		w.emit(ctx, e)
	}
	for _, key := range plan.Cancel {
		w.flights[key].cancel()
		w.flights[key].cancelled = true
	}
	for _, a := range plan.Start {
		w.begin(ctx, a)
	}
	if plan.Refresh {
		w.refresh(ctx)
	}
	w.release()
	w.publish(ctx, &plan)
	w.measure(began)
	at = plan.WakeAt
	for _, retry := range []time.Time{w.refreshTry, w.saveTry} {
		if !retry.IsZero() && (at.IsZero() || retry.Before(at)) {
			at = retry
		}
	}
	return at, false
}

// keep writes the facts to the journal: new decisions before anything is done
// about them, everything else beside the work. False means that the decisions
// could not be written.
func (w *worker) keep(ctx context.Context, plan *step.Plan) bool {
	if plan.Facts.State == step.Pending {
		return true
	}
	record := journal.Record{Facts: plan.Facts, Source: w.source, Pod: w.packed}
	if w.identity != nil {
		record.Namespace, record.Name = w.identity.Namespace, w.identity.Name
	}
	facts, err := json.Marshal(plan.Facts)
	if err != nil {
		w.l.log.Error("facts do not marshal", service.KeyUID, string(w.uid), service.KeyError, err.Error())
		return false
	}
	text := fmt.Sprintf("%s %d", facts, w.acceptID) // the pod itself is long
	if text == w.written {
		return true
	}
	if step.SameDecisions(w.saved, plan.Facts) {
		w.keepSoon(record, text)
		return true
	}
	if w.l.clock.Now().Before(w.saveTry) {
		return false
	}
	err = fault.Hit(ctx, "podworker.journal")
	if err == nil {
		err = w.l.journal.Save(w.uid, record)
	}
	if err == nil {
		err = fault.Hit(ctx, "podworker.journaled")
	}
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		w.failures++
		w.saveTry = w.l.clock.Now().Add(retryPeriod)
		if w.failures == 1 {
			w.l.log.Error("journal cannot be written: the pod stands still", service.KeyUID, string(w.uid), service.KeyError, err.Error())
		}
		plan.Wait = &step.Wait{Owner: "podworker", Step: "journal", Message: err.Error(), Since: w.l.clock.Now()}
		w.publish(ctx, plan)
		return false
	}
	w.saveTry, w.failures = time.Time{}, 0
	w.saved, w.written = plan.Facts, text
	return true
}

// keepSoon writes the record beside the work, the newest when one is done.
func (w *worker) keepSoon(record journal.Record, text string) {
	if w.saving || w.l.clock.Now().Before(w.saveTry) {
		return // comes round again
	}
	w.saving = true
	go func() {
		err := w.l.journal.Save(w.uid, record)
		w.post(func() {
			w.saving = false
			w.saveTry = time.Time{}
			if err != nil {
				w.saveTry = w.l.clock.Now().Add(retryPeriod)
				return
			}
			w.saved, w.written = record.Facts, text
		})
	}()
}

// forget removes the last of the pod: journal, then feed.
func (w *worker) forget(ctx context.Context) (at time.Time, forgotten bool) {
	if w.saving {
		return time.Time{}, false // a late write would bring it back
	}
	if err := w.l.journal.Forget(w.uid); err != nil {
		w.l.log.Error("pod not forgotten", service.KeyUID, string(w.uid), service.KeyError, err.Error())
		return w.l.clock.Now().Add(retryPeriod), false
	}
	if w.claimed != "" {
		w.l.unclaim(w.claimed, w.uid)
		w.claimed = ""
	}
	w.l.states.Delete(ctx, string(w.uid))
	w.l.metrics.forgotten.Inc()
	if w.doing.operation != "" {
		w.finish(w.l.clock.Now())
	}
	return time.Time{}, true
}

// release gives the pod's full name back when it holds it no longer.
func (w *worker) release() {
	switch w.facts.State {
	case step.Released:
	case step.Rejected:
		if w.accepted != nil && pod.IsStatic(w.accepted) {
			return // it may be admitted yet
		}
	default:
		return
	}
	if w.claimed != "" {
		w.l.unclaim(w.claimed, w.uid)
		w.claimed = ""
	}
}

// refresh asks pleg for a record of now; one request at a time.
func (w *worker) refresh(ctx context.Context) {
	if w.refreshing {
		w.refreshAgain = true
		return
	}
	if w.l.clock.Now().Before(w.refreshTry) {
		return
	}
	w.refreshing, w.refreshAgain = true, false
	acts, creates := w.acts, w.creates
	before, _, _, _ := w.l.in.Records.State()
	go func() {
		record, revision, err := w.l.read(ctx, w.uid)
		w.post(func() {
			w.refreshing = false
			if ctx.Err() != nil {
				return
			}
			w.refreshError, w.refreshTry = "", time.Time{}
			if err != nil {
				w.refreshError = err.Error()
				w.refreshTry = w.l.clock.Now().Add(retryPeriod)
				if rpc.Is(err, rpc.Denied) {
					w.l.log.Error("record refused", service.KeyUID, string(w.uid), service.KeyError, err.Error())
				}
				return
			}
			w.record, w.refreshed = record, newMark(revision, before)
			w.actsSeen, w.createsSeen = acts, creates
			if w.refreshAgain {
				w.refresh(ctx)
			}
		})
	}()
}
