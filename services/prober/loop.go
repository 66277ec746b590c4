// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"cmp"
	"context"
	"time"

	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// idle is the longest the loop sleeps, so that it beats for the watchdog.
const idle = 20 * time.Second

// loop is the only goroutine that touches the schedule: facts and results come
// in, probes go out when they are due.
func (s *Service) loop(ctx context.Context) error {
	if err := s.restore(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.beat()
		changed := map[string]bool{}
		select {
		case <-ctx.Done():
			return s.file.Close()
		case <-s.dirty.Wake:
		case <-timer.C:
		case f := <-s.done:
			s.finish(ctx, f, changed)
			s.drain(ctx, changed)
		}
		s.takeIn(ctx, changed)
		s.publish(ctx, changed)
		s.launch(ctx)
		wait := idle
		if due, ok := s.plan.Next(); ok {
			wait = min(max(due.Sub(s.now()), 0), idle)
		}
		timer.Reset(wait)
	}
}

// drain takes the results that have come in meanwhile: what they change is
// written together.
func (s *Service) drain(ctx context.Context, changed map[string]bool) {
	for {
		select {
		case f := <-s.done:
			s.finish(ctx, f, changed)
		default:
			return
		}
	}
}

// restore publishes the verdicts of the earlier life. They are right as long as
// the containers are the same, which takeIn finds out.
func (s *Service) restore(ctx context.Context) error {
	all, err := s.journal.All()
	if err != nil {
		return err
	}
	for uid, saved := range all {
		for _, v := range saved.GetVerdicts() {
			kind, ok := kindOf[v.GetKind()]
			if !ok {
				continue
			}
			s.plan.Restore(schedule.Key{UID: uid, Container: v.GetContainer(), Kind: kind}, schedule.Verdict{
				ContainerID: v.GetContainerId(), Result: resultOf[v.GetResult()], Since: v.GetSince().AsTime(), Message: v.GetMessage(),
			})
		}
		if _, err := s.verdicts.Set(ctx, uid, saved); err != nil {
			return err
		}
	}
	return nil
}

// takeIn applies what config and pleg say. Until both have answered, nothing is
// probed and nothing forgotten.
func (s *Service) takeIn(ctx context.Context, changed map[string]bool) {
	if !s.pods.Synced() || !s.records.Synced() {
		return
	}
	for uid := range s.dirty.Take() {
		p, wanted, podKnown := s.pods.Lookup(uid)
		record, seen, recordKnown := s.records.Lookup(uid)
		if !wanted && !podKnown || !seen && !recordKnown || seen && record.unread {
			s.dirty.Keep(uid) // not known is not gone: the change that settles it wakes the loop
			continue
		}
		var targets []schedule.Target
		if wanted {
			s.known[uid] = p
			s.host = cmp.Or(p.Status.HostIP, s.host)
			if seen {
				targets = schedule.Targets(p, record.containers)
			}
		}
		s.plan.Update(uid, targets, s.now())
		s.abandon(uid)
		changed[uid] = true
		if gone := s.known[uid]; !wanted && gone != nil {
			s.metrics.forget(gone)
			delete(s.known, uid)
		}
	}
	if s.complete || !s.pods.Listed() || !s.records.Listed() {
		return
	}
	for _, uid := range s.verdicts.Keys() { // of pods that went while prober was away
		if _, wanted, known := s.pods.Lookup(uid); !wanted && known {
			s.plan.Update(uid, nil, s.now())
			s.abandon(uid)
			changed[uid] = true
		}
	}
	s.publish(ctx, changed)
	clear(changed)
	s.complete = true
	s.verdicts.SetComplete(ctx, true)
	s.kit.Serving()
}
