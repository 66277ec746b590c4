// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
)

// releaser takes from pods what they hold.
type releaser struct {
	ledger  *ledger
	node    *node
	tree    *tree
	claims  *claims
	resizer *resizer
	evictor *evictor
	devices *podDevices
	sizes   *sizeFiles
	wake    signal.Signal
}

// begin notes that a pod is to lose what it holds, and tries to carry it out.
func (r *releaser) begin(ctx context.Context, uid string) error {
	if uid == "" {
		return rpc.Invalid.Errorf("uid: required")
	}
	defer r.ledger.turn(uid)()
	r.devices.over(uid)
	r.ledger.awaited.over(uid)
	if r.sizes.over(uid) {
		r.wake.Send() // a resize may have waited for it
	}
	r.ledger.set(func() { r.ledger.debts.settle(uid) })
	h := r.ledger.get(uid)
	if h == nil {
		h = r.abandoned(uid)
	}
	if h == nil {
		_ = r.claims.leave(uid) // what a kubelet left it; claims tries until it is done
		return nil
	}
	if !h.Releasing { // only the pod's turn writes it
		next := h.allocation
		next.Releasing = true
		if err := r.ledger.put(h, next); err != nil {
			return err
		}
	}
	r.release(ctx, h)
	return nil
}

// release has a pod's claims unprepared, removes its cgroup and then its item; what fails
// is tried again by the loop. Callers have the pod's turn.
func (r *releaser) release(ctx context.Context, h *held) {
	now, _ := r.node.now()
	err := fault.Hit(ctx, "resource.release")
	if err == nil {
		if err := r.claims.leave(h.uid()); err != nil { // the loop is woken when that has changed
			r.ledger.set(func() { h.err = err.Error() })
			r.ledger.show(ctx, h)
			return
		}
	}
	if err == nil && len(h.Cgroup) > 0 {
		err = r.tree.remove(ctx, now, h)
	}
	if err == nil && h.Evicting != nil {
		err = r.evictor.shortages.leave(r.evictor.now())
	}
	if err == nil {
		err = r.ledger.remove(ctx, h.uid())
	}
	if err != nil {
		r.ledger.set(func() { h.err = err.Error() })
		r.ledger.show(ctx, h)
		r.ledger.log.Warn("not released yet", "uid", h.uid(), "error", err.Error())
		time.AfterFunc(releaseRetry, r.wake.Send)
		return
	}
	r.devices.released(h)
	trigger := podTerminated
	if r.claims.unexpected(h.uid()) { // deleted without a status of its end
		trigger = podsRemoved
	}
	r.resizer.free(trigger)
	if len(h.chosen.GetContainers()) > 0 { // others may have what it had
		r.wake.Send()
	}
	if h.Evicting != nil { // the next may go
		r.evictor.hurry()
	}
	if now != nil {
		r.tree.change(now, h)
	}
}

// releaseRetry is how soon a release that failed is tried again.
const releaseRetry = time.Second

// again carries releases on that did not come to their end.
func (r *releaser) again(ctx context.Context) {
	r.ledger.each(func(h *held) {
		if h.Releasing {
			r.release(ctx, h)
		}
	})
}

// abandoned takes up the cgroup of a pod that holds nothing, to be released: the runtime
// makes the cgroup of a sandbox with all above it, also after the pod was released. Nil
// where there is none. Callers hold the pod's turn.
func (r *releaser) abandoned(uid string) *held {
	if pod.CheckUID(types.UID(uid)) != nil {
		return nil
	}
	now, _ := r.node.now()
	if now == nil || !now.qos() {
		return nil
	}
	name := r.tree.find(now, types.UID(uid))
	if name == nil {
		return nil
	}
	p := &v1.Pod{}
	p.UID = types.UID(uid)
	data, err := p.Marshal()
	if err != nil {
		r.ledger.log.Error("pod does not marshal", service.KeyUID, uid, "error", err.Error())
		return nil
	}
	h := newHeld(allocation{Pod: data, Cgroup: name, Driver: now.driver}, p)
	r.ledger.set(func() { r.ledger.held[uid] = h })
	return h
}
