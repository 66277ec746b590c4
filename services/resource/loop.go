// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"time"

	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
)

// renewPeriod is how often the cgroups of classes and reservations are written again, and a
// bound of all pods is tried again (the kubelet: 1 min).
const renewPeriod = time.Minute

// loop keeps the node's item true, makes sure of the cgroups, and carries
// releases out.
type loop struct {
	kit      *service.Kit
	wake     signal.Signal
	node     *node
	ledger   *ledger
	tree     *tree
	claims   *claims
	devices  *podDevices
	boots    *boots
	files    *stateFiles
	evictor  *evictor
	resizer  *resizer
	releaser *releaser

	unallocated unallocated
	renewed     time.Time
}

// run works until ctx ends.
func (l *loop) run(ctx context.Context) error {
	beat := l.kit.Heart("resources", time.Minute)
	again := time.NewTimer(period)
	defer again.Stop()
	for {
		beat()
		err := l.settle(ctx)
		l.node.waits(err)
		if err != nil {
			l.kit.Waiting(err.Error())
		} else {
			l.kit.Serving()
		}
		l.releaser.again(ctx)
		l.resizer.again(ctx)
		wait := pause(l.evictor.now(), l.evictor.next, l.unallocated.due)
		if err != nil {
			wait = max(wait, soon)
		}
		again.Reset(wait)
		select {
		case <-ctx.Done():
			l.evictor.alarm.stop()
			return l.ledger.file.Close()
		case <-l.wake:
		case <-again.C:
		}
	}
}

// pause is how long the loop waits for a signal: until the first of what is due, which
// would miss a tick that comes just before it, and a period at most.
func pause(now time.Time, due ...time.Time) time.Duration {
	wait := period
	for _, at := range due {
		if !at.IsZero() {
			wait = min(wait, max(0, at.Sub(now)))
		}
	}
	return wait
}

// settle takes up the configuration and the runtime's answer, decides about evictions,
// and publishes what the node has. A change of the configuration makes sure of all
// cgroups again.
func (l *loop) settle(ctx context.Context) error {
	next, err := l.node.read()
	if err != nil {
		return err
	}
	if former, _ := l.node.now(); former == nil || former.conf != next.conf || former.driver != next.driver {
		if err := l.tree.ensure(ctx, next); err != nil {
			return err
		}
		if former == nil {
			l.evictor.recall(next)
		}
		l.evictor.hurry()
		l.renewed = l.evictor.now()
	} else if at := l.evictor.now(); at.Sub(l.renewed).Abs() >= renewPeriod {
		l.tree.renew(ctx, next)
		l.renewed = at
	}
	l.node.use(next)
	if err := l.ledger.showShared(ctx, next); err != nil {
		return err
	}
	at := l.evictor.now()
	l.evictor.pass(ctx, next, at)
	if l.devices.pass(ctx, next, l.claims.unexpected, l.wake) {
		l.files.write(next) // before pods come for what is published here
	} else {
		l.files.changed.Send()
	}
	l.boots.check(ctx, next, at)
	if err := l.unallocated.search(at, next); err != nil {
		l.kit.Log.Error("pods' cgroups not listed", "error", err.Error())
	}
	return l.node.publish(ctx, next, l.evictor.wire(), l.unallocated.uids, l.claims.present())
}
