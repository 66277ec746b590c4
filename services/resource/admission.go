// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/wire"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/admit"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/devices"
	"github.com/sextant-node/sextant/services/resource/internal/dra"
	"github.com/sextant-node/sextant/services/resource/internal/pinning"
	"github.com/sextant-node/sextant/services/resource/internal/preempt"
)

// admission gives pods what they need: it judges, has allocators choose, journals, and
// acts, in this order (package allocate).
type admission struct {
	ledger     *ledger
	node       *node
	tree       *tree
	evictor    *evictor
	claims     *claims
	events     *events
	metrics    *metrics
	allocators []allocate.Allocator
	wake       signal.Signal
	pinned     *pinMetrics
	clock      func() time.Time
	devices    *podDevices
	files      *stateFiles
	sizes      *sizeFiles
	identities house.Identities
}

// decision is an allocation to be carried out, or the answer to a pod that has none.
type decision struct {
	held   *held
	now    *settings
	answer *resourcev1.AdmitResponse
	// victims make room for the pod; missing is the first resource that there is too little of.
	victims []*v1.Pod
	missing v1.ResourceName
	// question is to be put to a plugin first; there is neither answer nor allocation.
	question *devices.Question
	// by is what a running pod is to keep, and displaced are the pods that have CPUs of it by
	// the checkpoint: they lose them first.
	by        *resourcev1.Chosen
	displaced []string
	// lost is what a running pod does not keep.
	lost string
	// outdated: the answer refuses the pod for labels that the node may have by now.
	outdated bool
}

// admit answers for a pod. Victims go after the pod's turn, each in its own.
func (a *admission) admit(ctx context.Context, p *v1.Pod, running bool) (*resourcev1.AdmitResponse, error) {
	d, err := a.try(ctx, p, running)
	for err == nil && len(d.displaced) > 0 {
		for _, uid := range d.displaced {
			err = errors.Join(err, a.unpin(ctx, uid, d.by))
		}
		if err == nil {
			d, err = a.try(ctx, p, running)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, v := range d.victims {
		grace := ptr.Deref(v.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
		if a.evictor.sentence(ctx, v, evicting{Reason: preempt.Reason, Message: preempt.Message, Grace: grace}) {
			a.metrics.preemptions.WithLabelValues(string(d.missing)).Inc()
		}
	}
	return d.answer, nil
}

// try decides and, where the pod is to have something, acts.
func (a *admission) try(ctx context.Context, p *v1.Pod, running bool) (d decision, err error) {
	defer a.ledger.turn(string(p.UID))()
	if d, err = a.consult(ctx, p, running, nil); err == nil && d.outdated {
		d, err = a.decideAnew(ctx, p, d)
	}
	if d.lost != "" {
		a.events.pod(ctx, p, v1.EventTypeWarning, pinning.Lost, d.lost)
	}
	if err == nil && d.held != nil {
		d.answer, err = a.act(ctx, d.held, p, d.now, running)
	}
	return d, err
}

// decideAnew decides with the Node as the API server has it now, as a kubelet does: the
// scheduler may have placed the pod for a label that config has not heard of. While it does
// not say, a static pod is refused, whose labels nobody else has matched, and another waits.
func (a *admission) decideAnew(ctx context.Context, p *v1.Pod, was decision) (decision, error) {
	object, err := a.node.readObject(ctx)
	switch {
	case err == nil:
		return a.consult(ctx, p, false, object)
	case !pod.IsStatic(p):
		return decision{answer: notYet("", was.answer.GetMessage()+", as far as is known; the Node object was not read: "+err.Error())}, nil
	}
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.settle(string(p.UID), was.answer)
	return was, nil
}

// consult decides with what plugins prefer. What other pods got while a plugin was asked may
// raise another question, which is put to it as well.
func (a *admission) consult(ctx context.Context, p *v1.Pod, running bool, object *v1.Node) (decision, error) {
	for {
		d, err := a.decide(p, running, object)
		if err != nil || d.question == nil {
			return d, err
		}
		if err := a.devices.ask(ctx, string(p.UID), *d.question); err != nil {
			return decision{}, err
		}
	}
}

// decide answers, or returns the allocation to carry out, a pod that fits being counted from
// here on, or a question to a plugin. It writes nothing. object is node.judged's.
func (a *admission) decide(p *v1.Pod, running bool, object *v1.Node) (decision, error) {
	now, waiting := a.node.now()
	given := true
	if running {
		p, given = a.sizes.known(p)
	}
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	uid := string(p.UID)
	h := a.ledger.held[uid]
	switch {
	case h != nil && h.Releasing:
		return decision{}, rpc.Conflict.Errorf("pod %s: what it holds is being released", uid)
	case now == nil && h != nil && running:
		return decision{answer: a.admitted(h)}, nil
	case now == nil:
		return decision{answer: notYet("", "the node's resources are not known yet: "+waiting)}, nil
	case h != nil:
		return decision{held: h, now: now}, nil
	}
	request := allocate.Request{Pod: p, Running: running, Config: now.conf, Held: a.ledger.chosen(uid), Awaited: a.ledger.awaited.pods(now)}
	if !running {
		if d := a.judge(request, now, object); d.answer != nil || d.question != nil {
			if !d.outdated {
				a.settle(uid, d.answer)
			}
			return d, nil
		}
	}
	chosen, count := a.choose(request, now)
	if chosen.Decision == resourcev1.Decision_DECISION_REJECTED {
		if giving := a.givenBack(request, now); len(giving) > 0 {
			return decision{answer: notYet("", "waiting for what pods that have ended give back: "+strings.Join(giving, ", "))}, nil
		}
	}
	if chosen.Decision != resourcev1.Decision_DECISION_ADMITTED {
		answer := &resourcev1.AdmitResponse{Decision: chosen.Decision, Reason: chosen.Reason, Message: chosen.Message}
		if chosen.Decision == resourcev1.Decision_DECISION_REJECTED {
			count()
		}
		a.settle(uid, answer)
		return decision{answer: answer}, nil
	}
	if displaced := pinning.Overlap(request.Held, chosen.Chosen); len(displaced) > 0 {
		return decision{by: chosen.Chosen, displaced: displaced}, nil
	}
	count()
	if chosen.Message != "" {
		a.ledger.log.Warn("running pod", "uid", uid, "reason", chosen.Reason, "message", chosen.Message)
	}
	record := allocation{Cgroup: now.cgroupOf(p), Driver: now.driver, Boot: a.node.facts.BootID, resizing: resizing{Asked: pod.SizesID(p)}}
	var err error
	if record.Pod, err = p.Marshal(); err != nil {
		return decision{}, err
	}
	if record.Chosen, err = wire.Marshal(chosen.Chosen); err != nil {
		return decision{}, err
	}
	if !given {
		record.Allocation = 1
	}
	h = newHeld(record, p)
	h.chosen = chosen.Chosen
	a.ledger.held[uid] = h
	a.ledger.debts.settle(uid)
	a.devices.forget(uid)
	d := decision{held: h, now: now}
	if chosen.Reason == pinning.Lost {
		d.lost = chosen.Message
	}
	return d, nil
}

// unpin takes from a pod the CPUs of its own that another has by a kubelet's file, which is
// newer than the checkpoint.
func (a *admission) unpin(ctx context.Context, uid string, by *resourcev1.Chosen) error {
	defer a.ledger.turn(uid)()
	h := a.ledger.get(uid)
	if h == nil {
		return nil
	}
	lost := pinning.Own(by)
	chosen := pinning.Without([]allocate.Held{{Pod: h.pod, Chosen: h.chosen}}, lost)[0].Chosen
	next := h.allocation
	var err error
	if next.Chosen, err = wire.Marshal(chosen); err != nil {
		return err
	}
	if err := a.ledger.put(h, next); err != nil {
		return err
	}
	lost = pinning.Own(h.chosen).Difference(pinning.Own(chosen))
	a.ledger.set(func() { h.chosen = chosen })
	a.ledger.log.Warn("pod has lost its CPUs to one that runs with them", "uid", uid, "cpus", lost.String())
	if !h.Releasing && len(h.Cgroup) > 0 && a.tree.of(h.Driver).Begun(h.Cgroup) {
		a.events.pod(ctx, h.pod, v1.EventTypeWarning, pinning.Lost, "other pods have what it had of its own before the kubelet: CPUs "+lost.String())
	}
	a.ledger.show(ctx, h)
	return nil
}

// withoutDevices is the answer to a pod that holds its place, and whose claims are not
// prepared. The reason and the words are the kubelet's.
func withoutDevices(err error) *resourcev1.AdmitResponse {
	if errors.Is(err, dra.ErrPending) {
		return notYet("", err.Error())
	}
	return notYet("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: "+err.Error())
}

// settle counts an answer that refuses: the pod is owed nothing any more, and what plugins
// prefer for it is forgotten, for nobody releases it. Callers hold ledger.mu.
func (a *admission) settle(uid string, answer *resourcev1.AdmitResponse) {
	if answer.GetDecision() == resourcev1.Decision_DECISION_REJECTED {
		a.ledger.debts.settle(uid)
		a.ledger.awaited.over(uid)
		a.devices.over(uid)
		a.count(answer)
	}
}

// count counts an answer that refuses.
func (a *admission) count(answer *resourcev1.AdmitResponse) {
	if answer.GetDecision() == resourcev1.Decision_DECISION_REJECTED {
		a.metrics.rejections.WithLabelValues(rejectionLabel(answer.GetReason())).Inc()
	}
}

// act has plugins answer, writes the checkpoint with what they say, then makes the cgroup;
// callers have the pod's turn. A pod that runs is never refused, nor is one that was
// admitted before.
func (a *admission) act(ctx context.Context, h *held, p *v1.Pod, now *settings, running bool) (*resourcev1.AdmitResponse, error) {
	before := h.stored
	if !running {
		if answer, err := a.devices.prepare(ctx, h); answer != nil || err != nil {
			if answer != nil {
				a.count(answer)
				a.wake.Send() // it may not have its CPUs any more
			}
			return answer, err
		}
	}
	if !before {
		if !h.stored {
			if err := a.ledger.put(h, a.tree.adopted(h, now, running)); err != nil {
				a.ledger.forget(h.uid())
				return nil, err
			}
		}
		changed, err := a.ledger.share(now)
		if err != nil {
			a.ledger.log.Error("shared CPUs", "error", err.Error()) // the loop does it again
		}
		if changed || err != nil || running { // the items of others have the former; resizes may have waited for it
			a.wake.Send()
		}
		if len(h.chosen.GetContainers()) > 0 {
			a.files.changed.Send()
		}
	}
	if err := a.tree.ensurePod(h, now); err != nil {
		a.ledger.log.Error("pod cgroup", "uid", h.uid(), "error", err.Error())
		if !before && !running {
			if err := a.ledger.remove(ctx, h.uid()); err != nil {
				a.ledger.forget(h.uid())
				a.ledger.log.Error("checkpoint", "uid", h.uid(), "error", err.Error())
			}
			a.devices.touch()
			return notYet("", err.Error()), nil
		}
	}
	a.tree.change(now, h)
	if err := a.warn(ctx, h); err != nil {
		return nil, err
	}
	unprepared := a.claims.ask(ctx, h, p, running)
	if err := a.ledger.publish(ctx, h); err != nil {
		return nil, err
	}
	if unprepared != nil {
		return withoutDevices(unprepared), nil
	}
	return a.admitted(h), nil
}

// warn emits an event, once, about a pod that runs as a user of the node; callers have
// the pod's turn.
func (a *admission) warn(ctx context.Context, h *held) error {
	if h.Warned {
		return nil
	}
	shared := admit.SharedUser(h.pod, a.identities)
	if shared == "" {
		return nil
	}
	a.events.pod(ctx, h.pod, v1.EventTypeWarning, "UserOfNodeService", shared)
	next := h.allocation
	next.Warned = true
	return a.ledger.put(h, next)
}

func (a *admission) admitted(h *held) *resourcev1.AdmitResponse {
	return &resourcev1.AdmitResponse{
		Decision: resourcev1.Decision_DECISION_ADMITTED, CgroupParent: h.parent(), Revision: a.ledger.revision().Proto(),
	}
}
