// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// retryPeriod is how soon pleg is asked again, and the disk tried again, after
// a failure.
const retryPeriod = time.Second

// worker sees to one pod: gather, decide, act, publish, and again when woken. Its fields
// belong to its goroutine, but for the mailbox and shared.
type worker struct {
	*mailbox
	shared

	l   *loop
	uid types.UID
	// leftover: the pod is known by nothing but the folder that it left.
	leftover bool

	facts   step.Facts
	spec    specification
	fresh   freshness
	durable durability
	meter   meter
	flights map[step.Key]*flight
	// logged is how many instances of a container the log directory shows, nil until read.
	logged map[string]int
	// messages of containers that have exited, by ID.
	messages map[string]*podworkerv1.ContainerMessage
	// announced is the state that was announced last, without what the pod waits for, and
	// wait the last of that.
	announced []byte
	wait      *podworkerv1.Wait
	// claimed is the full name the pod holds, empty for none.
	claimed string
}

// shared is what the loop reads and writes of a worker; loop.mu guards it.
type shared struct {
	published bool
	heeds     [topics]bool
	// names are the keys of the API objects its containers are made from, and
	// objectsChanged when one of them last changed.
	names          map[string]bool
	objectsChanged time.Time
	outward        seenBy
}

func newWorker(l *loop, uid types.UID, record journal.Record, kept bool, found *v1.Pod) *worker {
	w := &worker{
		mailbox: newMailbox(), l: l, uid: uid, leftover: found != nil,
		spec:    specification{identity: found},
		fresh:   freshness{in: l.in, uid: uid, commands: map[step.Kind]feed.Barrier{}},
		meter:   meter{metrics: l.metrics, born: l.clock.Now()},
		flights: map[step.Key]*flight{}, messages: map[string]*podworkerv1.ContainerMessage{},
	}
	if kept || !l.journal.Intact && !l.complete {
		// A former process may have made something that the record does not show yet.
		// Where the journal is whole and does not know the pod, or the node was looked
		// through before, it has not.
		w.fresh.changes.made, w.fresh.creates.made = 1, 1
	}
	if kept {
		w.facts, w.durable.facts = record.Facts, record.Facts
		if err := w.spec.restore(uid, record); err != nil {
			l.log.Error("journaled pod is of no use", service.KeyUID, string(uid), service.KeyError, err.Error())
		}
		if s := w.facts.State; record.Source != pod.SourceAPI && (s == step.Syncing || s == step.Terminating || s == step.Terminated) {
			w.claimed = pod.FullName(w.spec.identity)
			if _, taken := l.claims[w.claimed]; !taken { // l.mu is held
				l.claims[w.claimed] = uid
			}
		}
	}
	w.poke()
	return w
}

// run works until ctx ends or the pod is forgotten.
func (w *worker) run(ctx context.Context) {
	w.each(ctx, w.l.clock, func() (at time.Time, forgotten bool) {
		if at, forgotten = w.turn(ctx); forgotten {
			w.l.retire(w)
		}
		return at, forgotten
	})
	for _, f := range w.flights {
		f.cancel()
	}
}

// turn is one round. It returns when to come round again at the latest.
func (w *worker) turn(ctx context.Context) (at time.Time, forgotten bool) {
	began := w.l.clock.Now()
	from := w.outset()
	in := w.gather()
	plan := step.Step(in)
	w.heed(from, &in, &plan)
	w.meter.step(&in, &plan, w.spec.accepted)
	if orphaned(&in, &plan) {
		w.l.log.Info("pod is ended: the runtime has it and no source lists it", service.KeyUID, string(w.uid), service.KeyPod, pod.String(w.spec.identity),
			"sandboxes", len(in.Observed.Sandboxes), "containers", len(in.Observed.Containers))
	}
	if ctx.Err() != nil {
		return time.Time{}, false
	}
	if plan.Forget {
		return w.forget(ctx)
	}
	if !w.keep(ctx, &plan) {
		return w.durable.retryAt, false
	}
	w.facts = plan.Facts
	if plan.Again {
		w.meter.counted = false
		w.l.metrics.restarted.WithLabelValues(staticLabel(w.spec.accepted)).Inc()
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
	if plan.Refresh || w.fresh.refreshDue(w.l.clock.Now()) {
		w.refresh(ctx)
	}
	w.release()
	w.publish(ctx, &plan)
	w.meter.round(&w.facts, w.spec.id, len(w.flights) > 0, w.fresh.refresh != noRefresh, began, w.l.clock.Now())
	at = plan.WakeAt
	for _, retry := range []time.Time{w.fresh.retryAt, w.durable.retryAt} {
		if !retry.IsZero() && (at.IsZero() || retry.Before(at)) {
			at = retry
		}
	}
	return at, false
}

// forget removes the last of the pod: journal, then feed.
func (w *worker) forget(ctx context.Context) (at time.Time, forgotten bool) {
	w.durable.await() // a late write would bring it back
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
	w.meter.finish(w.facts.State, w.l.clock.Now())
	return time.Time{}, true
}

// release gives the pod's full name back when it holds it no longer.
func (w *worker) release() {
	switch w.facts.State {
	case step.Released:
	case step.Rejected:
		if w.spec.static() {
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
