// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/wire"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

var lifecycles = map[step.State]podworkerv1.Lifecycle{
	step.Pending:     podworkerv1.Lifecycle_LIFECYCLE_PENDING,
	step.Syncing:     podworkerv1.Lifecycle_LIFECYCLE_SYNCING,
	step.Terminating: podworkerv1.Lifecycle_LIFECYCLE_TERMINATING,
	step.Terminated:  podworkerv1.Lifecycle_LIFECYCLE_TERMINATED,
	step.Released:    podworkerv1.Lifecycle_LIFECYCLE_RELEASED,
	step.Rejected:    podworkerv1.Lifecycle_LIFECYCLE_REJECTED,
}

// publish tells the house what is known of the pod.
func (w *worker) publish(ctx context.Context, plan *step.Plan) {
	w.l.mu.Lock()
	w.show()
	w.l.mu.Unlock()
	if w.spec.identity != nil { // else nothing has a name yet
		if err := w.announce(ctx, w.state(ctx, plan)); err != nil {
			w.l.log.Error("state not published", service.KeyUID, string(w.uid), service.KeyError, err.Error())
		}
	}
	w.l.mu.Lock()
	first := !w.published
	w.published = true
	w.l.mu.Unlock()
	if first {
		w.settle()
	}
	w.l.end.stir()
}

// announce publishes a state. What the pod waits for changes with every step of its way and
// is for operators, who pull when they look: a change of nothing else is not announced.
func (w *worker) announce(ctx context.Context, state *podworkerv1.PodState) error {
	wait := state.GetWait()
	state.Wait = nil
	rest, err := wire.Marshal(state)
	if err != nil {
		return err
	}
	state.Wait = wait
	same := bytes.Equal(rest, w.announced)
	switch {
	case same && proto.Equal(wait, w.wait):
		return nil
	case same:
		err = w.l.states.Amend(string(w.uid), state)
	default:
		_, err = w.l.states.Set(ctx, string(w.uid), state)
	}
	if err == nil {
		w.announced, w.wait = rest, wait
	}
	return err
}

func (w *worker) state(ctx context.Context, plan *step.Plan) *podworkerv1.PodState {
	f := &plan.Facts
	desired, _ := w.l.in.desired(w.uid, w.spec.source)
	sized, _ := w.pod()
	state := &podworkerv1.PodState{
		Uid: string(w.uid), Namespace: w.spec.identity.Namespace, Name: w.spec.identity.Name,
		Lifecycle: lifecycles[f.State], Pod: w.spec.packed, Source: cmp.Or(w.spec.source, "runtime"),
		StartedAt: wire.Time(f.StartedAt), Messages: w.terminationMessages(ctx),
		AllContainersRestarting: f.RestartAll != nil,
	}
	w.lives.sized = w.lives.sized || plan.Sized
	state.Resize, state.ResizeUnknown = w.fresh.resizeState(f, desired, sized, w.lives)
	if f.Admitted != nil {
		state.AdmittedAt = wire.Time(f.Admitted.At)
	}
	if r := f.Rejected; r != nil {
		state.Reason, state.Message = r.Reason, r.Message
		state.Verdict = &podworkerv1.Verdict{Kind: "Rejected", Time: wire.Time(r.At)}
	}
	if t := f.Termination; t != nil {
		state.TerminatingAt, state.GraceSeconds = wire.Time(t.Started), int64(t.Grace/time.Second)
		if v := t.Outcome; v != nil {
			state.Reason, state.Message = v.Reason, v.Message
			state.Verdict = &podworkerv1.Verdict{Kind: v.Kind, Disruption: v.Disruption, Time: wire.Time(v.At)}
		}
	}
	for _, c := range plan.Waits {
		wait := &podworkerv1.ContainerWait{
			Container: c.Container, Reason: c.Reason, Message: c.Message, RetryAt: wire.Time(c.Retry), LastError: c.LastError,
		}
		if c.BackOff > 0 {
			wait.BackOff = durationpb.New(c.BackOff)
		}
		state.Waits = append(state.Waits, wait)
	}
	if c := plan.Wait; c != nil {
		state.Wait = &podworkerv1.Wait{Owner: c.Owner, Step: c.Step, Message: c.Message, Since: wire.Time(c.Since), RetryAt: wire.Time(c.Retry)}
	}
	if w.spec.accepted != nil {
		for _, c := range pod.Containers(w.spec.accepted) {
			n := w.fresh.seen(f.Containers[c.Name])
			facts := &podworkerv1.ContainerFacts{
				Container: c.Name, RestartCount: int32(max(n-1, 0)), Unstarted: n == 0, Replaced: f.Containers[c.Name].Replaced,
				ResetCount: int32(f.Containers[c.Name].Reset),
			}
			if w.lives.sized {
				facts.Size = sizeOf(f.Containers[c.Name].Size)
			}
			state.Containers = append(state.Containers, facts)
		}
	}
	return state
}

// seen is how many instances of a container were made, as far as the record shows
// it: readers put both together, and a count that is ahead of the record would
// have them count the newest twice.
func (f *freshness) seen(c step.Container) int {
	if c.Last == nil || c.Last.Exit != nil {
		return c.Instances
	}
	if record, _ := f.current(); record != nil && record.Statuses[c.Last.ID] != nil {
		return c.Instances
	}
	return max(c.Instances-1, 0)
}

// terminationMessages are those of the containers that have exited; each is read
// once.
func (w *worker) terminationMessages(ctx context.Context) []*podworkerv1.ContainerMessage {
	record, _ := w.fresh.current()
	if record == nil {
		return nil
	}
	kept := map[string]*podworkerv1.ContainerMessage{}
	var out []*podworkerv1.ContainerMessage
	for _, c := range record.Containers {
		if c.State != step.Exited {
			continue
		}
		m, ok := w.messages[c.ID]
		if !ok {
			w.meter.died(record, c.ID, w.spec.accepted)
			m = &podworkerv1.ContainerMessage{ContainerId: c.ID, Message: w.l.containers.TerminationMessage(ctx, record.Statuses[c.ID])}
		}
		kept[c.ID] = m
		if m.GetMessage() != "" {
			out = append(out, m)
		}
	}
	w.messages = kept
	slices.SortFunc(out, func(a, b *podworkerv1.ContainerMessage) int {
		return strings.Compare(a.GetContainerId(), b.GetContainerId())
	})
	return out
}

// emit tells a decision as a Kubernetes Event.
func (w *worker) emit(ctx context.Context, e step.Event) {
	p, _ := w.pod()
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	event := &eventv1.Event{
		Object: &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)},
		Type:   kind, Reason: e.Reason, Message: e.Message, Time: timestamppb.New(w.l.clock.Now()),
	}
	if e.Container != "" {
		event.Object.FieldPath = pod.ContainerFieldPath(p, e.Container)
	}
	if err := w.l.events.Emit(ctx, event); err != nil {
		w.l.log.Warn("event lost", "reason", e.Reason, service.KeyUID, string(w.uid), service.KeyError, err.Error())
	}
}

// show tells others about the pod.
func (w *worker) show() {
	seen := seenBy{state: w.facts.State}
	if w.spec.accepted != nil {
		seen.priority = priority(w.spec.accepted)
		static := w.spec.static()
		seen.static = &static
	}
	if seen.state == step.Pending || seen.state == "" {
		record, _ := w.fresh.current()
		seen.runs = record != nil && record.Alive()
	}
	w.outward = seen
	// Its containers have been stopped for good, or it ends and no source lists it (a kubelet's
	// filterOutInactivePods).
	if seen.state == step.Terminated || seen.state == step.Terminating && w.fresh.unlisted() {
		w.l.inactive[w.uid] = true
	} else {
		delete(w.l.inactive, w.uid)
	}
}
