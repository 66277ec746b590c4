// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
	"github.com/sextant-node/sextant/services/podworker/internal/queue"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// begin starts an action beside the work; one under the same key is replaced.
func (w *worker) begin(ctx context.Context, a step.Action) {
	// A stop with less grace shortens the one under way, and both end together.
	key := a.Key()
	actx, cancel := context.WithCancelCause(ctx)
	var cause error
	if a.Kind == step.PreStop {
		cause = actuate.ErrEnded
	}
	f := &flight{action: a, since: w.l.clock.Now(), cancel: func() { cancel(cause) }}
	w.flights[key] = f
	if a.Kind.ShowsQueue() {
		actx = queue.Tell(actx, func(waiting bool) { w.post(func() { f.queued = waiting }) })
		actx = queue.Ahead(actx, ahead(a, w.facts.Containers[a.Container].Last, w.spec.accepted))
	}
	act := w.prepare(a)
	if a.WhenCalm() {
		act = w.l.calm.later(act, a.CalmUntil)
	} else if a.Kind.Changes() {
		w.l.calm.stir()
	}
	before, _ := w.fresh.position(a.Kind)
	w.l.metrics.actions.WithLabelValues(string(a.Kind)).Inc()
	w.l.log.Debug("action begins", "action", a.String(), service.KeyUID, string(w.uid))
	go func() {
		defer cancel(nil)
		point := "podworker." + string(a.Kind)
		err := fault.Hit(actx, point)
		var out outcome
		if err == nil {
			out, err = act(actx)
		}
		if err == nil {
			err = fault.Hit(actx, point+".done")
		}
		w.post(func() {
			if ctx.Err() != nil || w.flights[key] != f {
				return // the process stops, or a shorter call took its place
			}
			delete(w.flights, key)
			w.land(ctx, f, out, err, before)
		})
	}()
}

// How much later than others what starts something may come and have its turn before them.
const (
	// firstAhead has pods that have their sandboxes Ready before others begin, one after the
	// other, however many come at once. A sandbox has each of its containers once first, so
	// no other waits for them without an end.
	firstAhead = 10 * time.Minute
	// againAhead is what a container gets that was in its sandbox before. Containers that
	// fail again and again keep no sandbox waiting for longer.
	againAhead = time.Minute
	// criticalAhead is longer than a queue is.
	criticalAhead = time.Hour
)

// ahead is what an action gets of that; last is the newest instance of its container, nil
// if there was none.
func ahead(a step.Action, last *step.Last, p *v1.Pod) (by time.Duration) {
	switch {
	case a.Kind != step.Start:
	case last != nil && last.Sandbox == a.Sandbox:
		by = againAhead
	default:
		by = firstAhead
	}
	if p != nil && pod.IsCritical(p) {
		by += criticalAhead
	}
	return by
}

// land folds the end of an action into the facts.
func (w *worker) land(ctx context.Context, f *flight, out outcome, err error, before feed.Revision) {
	a := f.action
	w.l.log.Debug("action ended", "action", a.String(), service.KeyUID, string(w.uid), "took", w.l.clock.Now().Sub(f.since).String())
	if err != nil {
		out.Failed = w.failed(a, err, f.cancelled)
		out.Cancelled = f.cancelled
	}
	if a.Kind.Creates() && (f.cancelled || unanswered(err)) {
		w.l.suspect(ctx, w.uid)
	}
	if err == nil {
		w.fresh.commanded(a.Kind, out.revision, before)
	}
	if a.Kind == step.Update {
		w.l.metrics.resizes.WithLabelValues(strconv.FormatBool(err == nil)).Observe(float64(w.l.clock.Since(f.since).Milliseconds()))
	}
	var events []step.Event
	w.facts, events = step.Apply(w.facts, w.uid, a, out.Result, w.l.clock.Now())
	for _, e := range events {
		w.emit(ctx, e)
	}
	if a.Kind.Changes() {
		if !a.WhenCalm() {
			w.l.calm.stir()
		}
		w.fresh.changed(a, out.ID, err == nil)
		w.refresh(ctx)
	}
}

// failed words an error as a status does. What was cancelled here has not failed.
func (w *worker) failed(a step.Action, err error, cancelled bool) *step.Failed {
	why, message := actuate.ReasonOf(err)
	if why == "" {
		why = map[step.Kind]actuate.Reason{
			step.Pull: reason.ErrImagePull, step.Start: reason.RunContainerError,
			step.RunSandbox: reason.CreatePodSandboxError, step.Stop: reason.KillContainerError,
		}[a.Kind]
	}
	if !cancelled {
		w.l.metrics.failures.WithLabelValues(string(a.Kind)).Inc()
		w.l.log.Info("action failed", "action", a.String(), service.KeyUID, string(w.uid), "reason", string(why), service.KeyError, message)
	}
	return &step.Failed{Reason: string(why), Message: message, Cause: actuate.CauseOf(err), Away: actuate.Away(err)}
}

// unanswered reports whether a call ended without the runtime's answer: it may be
// carried out yet.
func unanswered(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return true
	}
	return false
}
