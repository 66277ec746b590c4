// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// span is what a worker does in one go: from the round that begins an action to
// the one after which none is under way. It is what the kubelet calls a sync;
// rounds in which there was nothing to do are none.
type span struct {
	operation string // empty: nothing is done
	stage     step.State
	since     time.Time
	accepted  uint64 // what was accepted when it began
}

// meter measures what one worker does.
type meter struct {
	metrics *metrics
	// born is when the worker was made; counted: the pod's start was counted.
	born    time.Time
	counted bool
	// doing and done are what the worker does now, and did last.
	doing, done span
}

// operation is the kubelet's word for what a worker does now.
func (m *meter) operation(f *step.Facts, accepted uint64) string {
	switch f.State {
	case step.Terminating:
		return ending(f.Termination)
	case step.Terminated, step.Released, step.Rejected:
		return "terminated"
	}
	switch {
	case m.done.operation == "":
		return "create"
	case m.done.accepted != accepted:
		return "update"
	}
	return "sync"
}

// ending is the kubelet's word for stopping a pod: what made it do so.
func ending(t *step.Termination) string {
	switch {
	case t != nil && t.Cause == step.Deleted:
		return "update"
	case t != nil && (t.Cause == step.Finished || t.Cause == step.Deadline):
		return "sync"
	}
	return "kill"
}

// round comes after a round of a worker. busy: actions are under way; refreshing: a
// record is.
func (m *meter) round(f *step.Facts, accepted uint64, busy, refreshing bool, began, ended time.Time) {
	operation, stage := m.operation(f, accepted), f.State
	if stage != m.doing.stage && !slices.Contains([]step.State{"", step.Pending, step.Syncing}, stage) {
		m.finish(stage, began)
	}
	if m.doing.operation == "" && busy {
		m.doing = span{operation, stage, began, accepted}
	}
	if !busy && !refreshing {
		m.finish(stage, ended)
	}
}

// finish ends a span, if there is one. A pod that was refused has no sync.
func (m *meter) finish(stage step.State, at time.Time) {
	if m.doing.operation == "" {
		return
	}
	if stage != step.Rejected {
		m.metrics.round.WithLabelValues(m.doing.operation).Observe(at.Sub(m.doing.since).Seconds())
		m.done = m.doing
	}
	m.doing = span{}
}

// orphaned reports whether a plan ends a pod that only the runtime has.
func orphaned(in *step.Input, plan *step.Plan) bool {
	t := plan.Facts.Termination
	return t != nil && in.Facts.Termination == nil && t.Cause == step.Orphan && len(in.Observed.Sandboxes)+len(in.Observed.Containers) > 0
}

// step counts one step and what it decided.
func (m *meter) step(in *step.Input, plan *step.Plan, accepted *v1.Pod) {
	m.metrics.steps.Inc()
	if orphaned(in, plan) {
		m.metrics.orphans.Inc()
	}
	if !m.counted && plan.Facts.State == step.Syncing && accepted != nil {
		m.counted = true
		m.metrics.containers.Observe(float64(len(accepted.Spec.Containers)))
		if in.Desired != nil && !in.Desired.Seen.IsZero() && !plan.Facts.StartedAt.Before(m.born) { // not by a former process
			m.metrics.firstRound.Observe(max(0, in.Now.Sub(in.Desired.Seen).Seconds()))
		}
	}
}

// died counts a container that a record newly shows as ended, unless it ended before the
// worker was made: a former process saw that.
func (m *meter) died(record *observe.Record, id string, accepted *v1.Pod) {
	status := record.Statuses[id]
	if time.Unix(0, status.GetFinishedAt()).Before(m.born) {
		return
	}
	kind := "container"
	if accepted != nil {
		switch _, k := pod.FindContainer(accepted, status.GetMetadata().GetName()); k {
		case pod.Init, pod.Sidecar:
			kind = "init_container"
		case pod.Ephemeral:
			kind = "ephemeral_container"
		}
	}
	m.metrics.ended.WithLabelValues(kind, strconv.Itoa(int(status.GetExitCode())), status.GetReason()).Inc()
}
