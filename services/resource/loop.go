// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"time"
)

// period of measuring (the kubelet's eviction monitor: 10 s).
const period = 10 * time.Second

// renewPeriod is how often the cgroups of classes and reservations are written again (the
// kubelet: 1 min).
const renewPeriod = time.Minute

// loop keeps the node's item true, makes sure of the cgroups, and carries
// releases out.
func (s *Service) loop(ctx context.Context) error {
	beat := s.kit.Heart("resources", time.Minute)
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		beat()
		err := s.settle(ctx)
		s.node.waits(err)
		if err != nil {
			s.kit.Waiting(err.Error())
		} else {
			s.kit.Serving()
		}
		s.releaser.again(ctx)
		s.resizer.again(ctx)
		select {
		case <-ctx.Done():
			s.evictor.alarm.stop()
			return s.ledger.file.Close()
		case <-s.wake:
		case <-tick.C:
		}
	}
}

// settle takes up the configuration and the runtime's answer, decides about evictions,
// and publishes what the node has. A change of the configuration makes sure of all
// cgroups again.
func (s *Service) settle(ctx context.Context) error {
	next, err := s.node.read()
	if err != nil {
		return err
	}
	if former, _ := s.node.now(); former == nil || former.conf != next.conf || former.driver != next.driver {
		if err := s.tree.ensure(ctx, next); err != nil {
			return err
		}
		s.evictor.hurry()
		s.renewed = s.evictor.now()
	} else if at := s.evictor.now(); at.Sub(s.renewed).Abs() >= renewPeriod {
		s.tree.renew(next)
		s.renewed = at
	}
	s.node.use(next)
	if err := s.ledger.showShared(ctx, next); err != nil {
		return err
	}
	s.admission.files.write(next)
	s.evictor.pass(ctx, next)
	s.devices.pass(ctx, next, s.wake)
	if err := s.unallocated.search(s.evictor.now(), next); err != nil {
		s.kit.Log.Error("pods' cgroups not listed", "error", err.Error())
	}
	return s.node.publish(ctx, next, s.evictor.wire(), s.unallocated.uids, s.admission.claims.present())
}
