// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// run works until ctx ends or the pod is forgotten.
func (w *worker) run(ctx context.Context) (forgotten bool) {
	w.each(ctx, w.l.clock, func() (at time.Time, last bool) {
		at, forgotten = w.turn(ctx)
		return at, forgotten
	})
	for _, f := range w.flights {
		f.cancel()
	}
	return forgotten
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
