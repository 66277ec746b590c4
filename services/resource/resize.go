// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/resource/internal/admit"
	"github.com/sextant-node/sextant/services/resource/internal/resize"
)

// Resizes that wait are judged again this often, or this soon where the Node object is not
// known yet (the kubelet: 3 min, 30 s), besides each time that something may have become free.
const (
	rejudge     = 3 * time.Minute
	rejudgeSoon = 30 * time.Second
)

// errTooEarly: a resize cannot be judged yet, for the Node object is not known, or not all pods
// are that have something of it.
var errTooEarly = errors.New("what the node has is not known yet")

// What made resizes be judged again, as the kubelet's metric has it.
const (
	podsAdded     = "pods_added" // the first look of a life
	podUpdated    = "pod_updated"
	podResized    = "pod_resized"
	podTerminated = "pod_terminated"
	podsRemoved   = "pods_removed"
	periodically  = "periodic_retry"
)

// resizer judges what running pods ask for, and gives their cgroups room for it.
type resizer struct {
	ledger  *ledger
	node    *node
	tree    *tree
	events  *events
	metrics *metrics
	devices *podDevices
	sizes   *sizeFiles
	now     func() time.Time
	wake    signal.Signal
	// turns orders those who judge.
	turns sync.Mutex

	mu sync.Mutex
	// due is when resizes that wait are judged again; freed is why earlier.
	due   time.Time
	freed string
}

// resize notes what a pod wants, and judges it.
func (r *resizer) resize(ctx context.Context, p *v1.Pod) error {
	if err := r.ask(ctx, p); err != nil {
		return err
	}
	r.judgeAll(ctx, podUpdated)
	return nil
}

// ask notes what a pod wants.
func (r *resizer) ask(ctx context.Context, p *v1.Pod) error {
	uid := string(p.UID)
	defer r.ledger.turn(uid)()
	h := r.ledger.get(uid)
	switch {
	case h == nil || !h.stored:
		return rpc.NotFound.Errorf("pod %s was not admitted", uid)
	case h.Releasing:
		return rpc.Conflict.Errorf("pod %s: what it holds is being released", uid)
	case h.Asked == pod.SizesID(p):
		return nil
	}
	wish, err := pod.Sizes(p).Marshal()
	if err != nil {
		return err
	}
	next := h.allocation
	next.Asked, next.Wish, next.Generation = pod.SizesID(p), wish, p.Generation
	before := h.pod
	if h.wish != nil {
		before = h.wish
	}
	desired := pod.WithSizes(h.pod, pod.Sizes(p))
	if desired == h.pod { // it wants no more what it did not get
		next.Wish, next.Pending, desired = nil, nil, nil
	}
	if err := r.ledger.put(h, next); err != nil {
		return err
	}
	r.ledger.set(func() { h.wish = desired })
	if needs, err := admit.UpdateNeeds(before, p, r.node.declared()); err != nil {
		r.ledger.log.Error("features that an update needs", "uid", uid, "error", err.Error())
	} else if needs != "" {
		r.events.pod(ctx, p, v1.EventTypeWarning, "FailedNodeDeclaredFeaturesCheck", needs)
	}
	for _, o := range resize.Operations(before, p) {
		r.metrics.requestedResizes.WithLabelValues(o.Resource, o.Requirement, o.Operation).Inc()
	}
	return r.ledger.publish(ctx, h)
}

// judgeAll judges all resizes that wait, in their order. One that is granted
// may let another be, so it goes round until none is.
func (r *resizer) judgeAll(ctx context.Context, trigger string) {
	r.turns.Lock()
	defer r.turns.Unlock()
	again := rejudge
	for {
		granted := false
		for _, w := range r.waiting() {
			ok, err := r.judge(ctx, string(w.Desired.UID), trigger)
			if errors.Is(err, errTooEarly) {
				again = rejudgeSoon
			} else if err != nil {
				r.ledger.log.Error("resize", "uid", string(w.Desired.UID), "error", err.Error())
			}
			granted = granted || ok
		}
		if !granted {
			break
		}
		trigger = podResized
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = r.now().Add(again)
}

// waiting are the pods with a wish, in the order of judging.
func (r *resizer) waiting() []resize.Waiting {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	var all []resize.Waiting
	for _, h := range r.ledger.held {
		if h.wish == nil || h.Releasing {
			continue
		}
		w := resize.Waiting{Desired: h.wish, Allocated: h.pod}
		if h.Pending != nil {
			w.Since = h.Pending.Since
		}
		all = append(all, w)
	}
	resize.Sort(all)
	return all
}

// judge judges one pod's wish and does what comes of it. An infeasible one
// is judged again like others: the node's policies may have changed.
func (r *resizer) judge(ctx context.Context, uid, trigger string) (granted bool, err error) {
	defer r.ledger.turn(uid)()
	h := r.ledger.get(uid)
	now, _ := r.node.now()
	if h == nil || h.wish == nil || h.Releasing || now == nil {
		return false, nil
	}
	node, missing := r.node.judged(h.wish, now, nil)
	if missing != nil || r.sizes.awaits(now) {
		return false, errTooEarly
	}
	was, sizes, next := h.pod, h.wish, h.allocation
	var verdict *resize.Pending
	r.ledger.set(func() {
		r.devices.raise(was.UID, node.Allocatable)
		verdict = resize.Judge(sizes, was, r.ledger.others(uid), node, now.resizes())
		if owed := r.ledger.debts.before(was); verdict == nil && len(owed) > 0 {
			staying, _ := r.ledger.staying(uid)
			verdict = resize.Judge(sizes, was, append(staying, owed...), node, now.resizes())
		}
		if verdict == nil {
			h.take(sizes) // counted from here on; taken back below when it cannot be written
		}
	})
	if verdict != nil {
		return false, r.putOff(ctx, h, verdict)
	}
	deferred := next.Pending != nil && next.Pending.Reason == v1.PodReasonDeferred
	if next.Pod, err = sizes.Marshal(); err != nil {
		return false, err
	}
	room := ptr.Deref(next.Room, now.values(was, h.chosen).CgroupResources)
	room = resize.Room(room, now.values(sizes, h.chosen).CgroupResources)
	next.Room, next.Allocated, next.Wish, next.Pending = &room, next.Generation, nil, nil
	next.Allocation++
	if err := r.ledger.put(h, next); err != nil {
		r.ledger.set(func() { h.take(was) })
		return false, err
	}
	r.ledger.set(func() { h.wish = nil })
	if deferred {
		r.metrics.acceptedResizes.WithLabelValues(trigger).Inc()
	}
	r.events.pod(ctx, h.pod, v1.EventTypeNormal, "ResizeStarted", "Pod resize started: "+pod.ResizeSummary(h.pod, next.Allocated, ""))
	r.grow(ctx, h, now)
	return true, r.ledger.publish(ctx, h)
}

// putOff notes why a wish is not allocated; the event of it is emitted once.
func (r *resizer) putOff(ctx context.Context, h *held, verdict *resize.Pending) error {
	before, wish := h.Pending, h.wish
	p := &pending{Reason: verdict.Reason, Message: verdict.Message, Generation: h.Generation, Since: r.now()}
	news := before == nil || before.Reason != p.Reason || before.Generation != p.Generation
	if before != nil && before.Reason == p.Reason {
		p.Since = before.Since
	}
	if before != nil && *before == *p {
		return nil
	}
	next := h.allocation
	next.Pending = p
	if err := r.ledger.put(h, next); err != nil {
		return err
	}
	if news {
		if verdict.Detail != "" {
			r.metrics.infeasibleResizes.WithLabelValues(verdict.Detail).Inc()
		}
		r.events.pod(ctx, wish, v1.EventTypeWarning, "Resize"+p.Reason,
			"Pod resize "+verdict.Cause+": "+pod.ResizeSummary(wish, p.Generation, p.Message))
	}
	return r.ledger.publish(ctx, h)
}

// grow gives the pod's cgroup room for what was allocated; what hinders it is in
// the item, and tried again by the loop. Callers have the pod's turn.
func (r *resizer) grow(ctx context.Context, h *held, now *settings) {
	err := fault.Hit(ctx, "resource.grow")
	if err == nil {
		err = r.tree.ensurePod(h, now)
	}
	blocked := ""
	if err != nil {
		blocked = err.Error()
		r.ledger.log.Warn("pod cgroup not resized", "uid", h.uid(), "error", blocked)
		time.AfterFunc(growRetry, r.wake.Send)
	}
	r.ledger.set(func() { h.blocked = blocked })
	r.tree.change(now, h)
}

// growRetry is how soon a cgroup that could not grow is tried again.
const growRetry = time.Second

// settle shrinks the pod's cgroup to an allocation that the containers have, if it is the
// newest.
func (r *resizer) settle(ctx context.Context, uid string, number uint64) error {
	if uid == "" {
		return rpc.Invalid.Errorf("uid: required")
	}
	defer r.ledger.turn(uid)()
	h := r.ledger.get(uid)
	now, _ := r.node.now()
	if h == nil || h.Releasing || h.Allocation != number || h.Settled >= h.Allocation {
		return nil
	}
	if now == nil {
		return rpc.Unavailable.Errorf("the node's resources are not known yet")
	}
	if err := fault.Hit(ctx, "resource.settle"); err != nil {
		return rpc.Unavailable.Errorf("%w", err)
	}
	// The cgroup first: a kill before the note has it done again.
	if len(h.Cgroup) > 0 {
		if err := r.tree.of(h.Driver).Ensure(h.Cgroup, now.values(h.pod, h.chosen)); err != nil {
			return rpc.Unavailable.Errorf("%w", err)
		}
	}
	next := h.allocation
	next.Settled, next.Room = next.Allocation, nil
	if err := r.ledger.put(h, next); err != nil {
		return err
	}
	r.ledger.set(func() { h.blocked = "" })
	return r.ledger.publish(ctx, h)
}

// again judges what waits when its time has come or something became free,
// and lets cgroups grow that could not.
func (r *resizer) again(ctx context.Context) {
	now, _ := r.node.now()
	if now == nil {
		return
	}
	trigger := r.trigger()
	r.ledger.each(func(h *held) {
		if h.blocked != "" && !h.Releasing {
			r.grow(ctx, h, now)
			r.ledger.show(ctx, h)
		}
		if h.wish != nil && h.Pending == nil && trigger == "" {
			trigger = podUpdated // asked while the node was not known
		}
	})
	if trigger != "" {
		r.judgeAll(ctx, trigger)
	}
}

// trigger is why resizes that wait are judged now; empty for not at all.
func (r *resizer) trigger() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	trigger := r.freed
	r.freed = ""
	if trigger == "" && !r.now().Before(r.due) {
		trigger = periodically
	}
	return trigger
}

// free has the loop judge again what waits.
func (r *resizer) free(trigger string) {
	r.mu.Lock()
	r.freed = trigger
	r.mu.Unlock()
	r.wake.Send()
}
