// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/devices"
	"github.com/sextant-node/sextant/services/resource/internal/pinning"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// boots checks once, after the node has booted, that what pods were given before is there
// still: nothing of them runs, and the machine may be another. A pod waits for its plugins
// meanwhile. One that cannot have what it had gets a verdict, as a kubelet refuses it then.
type boots struct {
	boot    string // the current one
	started time.Time
	ledger  *ledger
	tree    *tree
	node    *node
	evictor *evictor
	events  *events
	metrics *metrics
}

// begin finds the pods that are to be checked.
func (b *boots) begin(ctx context.Context) (err error) {
	b.ledger.each(func(h *held) {
		if h.Boot == b.boot || h.Releasing || h.Evicting != nil || !exclusive(h.chosen) {
			return
		}
		if begun := len(h.Cgroup) > 0 && b.tree.of(h.Driver).Begun(h.Cgroup); begun || h.Boot == "" && len(h.Cgroup) == 0 {
			err = errors.Join(err, b.done(h))
			return
		}
		b.ledger.set(func() { h.unchecked = "the node has booted: what the pod was given before is not checked yet" })
		b.ledger.show(ctx, h)
	})
	return err
}

// exclusive reports whether a pod has devices of plugins, CPUs or memory of its own.
func exclusive(chosen *resourcev1.Chosen) bool {
	return !pinning.Own(chosen).IsEmpty() || len(chosen.GetMemory()) > 0 ||
		slices.ContainsFunc(chosen.GetContainers(), func(c *resourcev1.ContainerAllocation) bool {
			return len(c.GetPluginDevices())+len(c.GetMemory()) > 0
		})
}

// done notes that a pod is not to be checked any more in this boot; callers have its turn.
func (b *boots) done(h *held) error {
	next := h.allocation
	next.Boot = b.boot
	if err := b.ledger.put(h, next); err != nil {
		return err
	}
	b.ledger.set(func() { h.unchecked = "" })
	return nil
}

// check looks at the pods that are to be checked still.
func (b *boots) check(ctx context.Context, now *settings, at time.Time) {
	if !b.ledger.unchecked() { // no turn is waited for in vain
		return
	}
	var refused []*held
	var why []*topology.Refusal
	b.ledger.each(func(h *held) {
		if h.unchecked == "" || h.Releasing || h.Evicting != nil {
			return
		}
		err := stillThere(h.chosen, b.node.devices.Inventory(), now.pins, at.Sub(b.started))
		var w *devices.Waiting
		switch {
		case err == nil:
			if err := b.done(h); err != nil {
				b.ledger.log.Error("checkpoint", "uid", h.uid(), "error", err.Error())
				return
			}
		case errors.As(err, &w):
			if h.unchecked == w.String() {
				return
			}
			b.ledger.set(func() { h.unchecked = w.String() })
		default:
			refused, why = append(refused, h), append(why, topology.Refused(err))
			return
		}
		b.ledger.show(ctx, h)
	})
	for i, h := range refused {
		r := why[i]
		if b.evictor.sentence(ctx, h.pod, evicting{Reason: r.Reason, Message: r.Message}) {
			b.events.pod(ctx, h.pod, v1.EventTypeWarning, r.Reason, r.Message)
			b.metrics.rejections.WithLabelValues(rejectionLabel(r.Reason)).Inc()
		}
	}
}

// stillThere is the error of a pod that cannot have what was chosen for it, in the kubelet's
// words, or a devices.Waiting; up is how long plugins had to register.
func stillThere(chosen *resourcev1.Chosen, inventory devices.Inventory, pins *pinning.Policies, up time.Duration) error {
	if err := pins.StillThere(chosen); err != nil {
		return err
	}
	for _, c := range chosen.GetContainers() {
		for _, one := range c.GetPluginDevices() {
			name := one.GetResource()
			r := inventory[name]
			switch {
			case r == nil && up < devices.Grace:
				return &devices.Waiting{Resource: name, Why: "it has not registered"}
			case r == nil || r.State == devices.Gone:
				return fmt.Errorf("cannot allocate unregistered device %s", name)
			case r.State != devices.Serving:
				return &devices.Waiting{Resource: name, Why: r.Why}
			}
			for _, id := range devices.RecordIDs(one) {
				if !r.Devices[id].Healthy {
					return fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", name)
				}
			}
		}
	}
	return nil
}
