package podworker

import (
	"strconv"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// span is what a worker does in one go: from the round that begins an action to
// the one after which none is under way. It is what the kubelet calls a sync;
// rounds in which there was nothing to do are none.
type span struct {
	operation string // empty: nothing is done
	since     time.Time
	accepted  uint64 // what was accepted when it began
}

// operation is the kubelet's word for what a worker does now.
func (w *worker) operation() string {
	switch w.facts.State {
	case step.Terminating:
		return "kill"
	case step.Terminated, step.Released, step.Rejected:
		return "terminated"
	}
	switch {
	case w.done.operation == "":
		return "create"
	case w.done.accepted != w.acceptID:
		return "update"
	}
	return "sync"
}

// measure comes after a round that began at a time.
func (w *worker) measure(began time.Time) {
	operation := w.operation()
	ends := w.doing.operation == "kill" || operation == "kill" || operation == "terminated"
	if w.doing.operation != "" && ends && w.doing.operation != operation {
		w.finish(began) // another stage of its life
	}
	if w.doing.operation == "" && len(w.flights) > 0 {
		w.doing = span{operation, began, w.acceptID}
	}
	if w.doing.operation != "" && len(w.flights) == 0 && !w.refreshing {
		w.finish(w.l.clock.Now())
	}
}

func (w *worker) finish(at time.Time) {
	w.l.metrics.round.WithLabelValues(w.doing.operation).Observe(at.Sub(w.doing.since).Seconds())
	w.done, w.doing = w.doing, span{}
}

// rounds counts one round of a worker.
func (w *worker) rounds(in *step.Input, plan *step.Plan) {
	m := w.l.metrics
	m.steps.Inc()
	if in.Desired != nil && w.facts.State == "" && !in.Desired.Seen.IsZero() {
		m.firstRound.Observe(max(0, in.Now.Sub(in.Desired.Seen).Seconds()))
	}
	if t := plan.Facts.Termination; t != nil && w.facts.Termination == nil && t.Cause == step.Orphan {
		m.orphans.Inc()
	}
	if !w.counted && plan.Facts.State == step.Syncing && w.accepted != nil {
		w.counted = true
		m.containers.Observe(float64(len(w.accepted.Spec.Containers)))
	}
}

// deaths counts a container that a record newly shows as ended, unless it ended
// before the worker was made: an earlier process saw that.
func (w *worker) deaths(record *observe.Record, id string) {
	status := record.Statuses[id]
	if time.Unix(0, status.GetFinishedAt()).Before(w.born) {
		return
	}
	kind := "container"
	if w.accepted != nil {
		switch _, k := pod.FindContainer(w.accepted, status.GetMetadata().GetName()); k {
		case pod.Init, pod.Sidecar:
			kind = "init_container"
		case pod.Ephemeral:
			kind = "ephemeral_container"
		}
	}
	w.l.metrics.ended.WithLabelValues(kind, strconv.Itoa(int(status.GetExitCode())), status.GetReason()).Inc()
}

// sweep tells what became of the pods that searches of the disk found; l.mu is
// held.
func (l *loop) sweep() {
	stuck := 0
	for uid, w := range l.workers {
		if !w.leftover {
			continue
		}
		item, _ := l.in.Volumes.Get(string(uid))
		for _, v := range item.GetVolumes() {
			if v.GetError() != "" {
				stuck++
				break
			}
		}
	}
	l.metrics.stuck.Set(float64(stuck))
	l.metrics.swept.Set(float64(l.swept))
	l.swept = 0
}
