// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/rpc"
)

// declare notes that a pod is to have its volumes.
func (s *Service) declare(ctx context.Context, p *v1.Pod) (feed.Revision, error) {
	defer s.turns.Lock(string(p.UID))()
	s.pods.mu.Lock()
	w := s.pods.all[p.UID]
	withdrawing := w != nil && w.withdrawing
	known := w != nil && w.pod != nil
	same := known && equality.Semantic.DeepEqual(w.pod, p)
	s.pods.mu.Unlock()
	if withdrawing {
		return feed.Revision{}, rpc.Conflict.Errorf("pod %s: its volumes are being withdrawn", p.UID)
	}
	if !same {
		if err := s.maker.save(p.UID, p, false); err != nil {
			return feed.Revision{}, err
		}
		var standing map[string]*volumeWork
		if !known {
			standing = s.maker.standing(p)
		}
		s.pods.mu.Lock()
		if w == nil {
			w = newWork(p.UID)
			s.pods.all[p.UID] = w
		}
		if !known {
			w.volumes = standing
		}
		w.declared(p)
		w.found, w.asked = nil, s.clock.Now()
		w.touch()
		s.pods.mu.Unlock()
		s.pods.wake.Send()
	}
	if !same {
		// From this revision on the pod is listed with its volumes, even if nothing has been
		// done yet: an ephemeral container may be the first to mount one.
		s.pods.publish(ctx, w)
	}
	revision, _, _ := s.pods.owned.State()
	return revision, nil
}

// withdraw notes that a pod's volumes are to go.
func (s *Service) withdraw(ctx context.Context, uid types.UID) (feed.Revision, error) {
	defer s.turns.Lock(string(uid))()
	if w := s.pods.get(uid); w != nil {
		if !w.withdrawing { // only commands write it
			if err := s.maker.save(uid, w.pod, true); err != nil {
				return feed.Revision{}, err
			}
		}
		s.pods.mu.Lock()
		w.withdrawing = true
		w.touch()
		w.leave()
		s.pods.mu.Unlock()
		s.pods.publish(ctx, w)
		s.pods.wake.Send()
	}
	revision, _, _ := s.pods.owned.State()
	return revision, nil
}

// loop starts a pass for every pod that needs one.
func (s *Service) loop(ctx context.Context) error {
	beat := s.kit.Heart("volumes", time.Minute)
	s.pods.publishAll(ctx)
	s.pods.owned.SetComplete(ctx, true)
	s.kit.Serving()
	timer := s.clock.NewTimer(s.start(ctx))
	defer timer.Stop()
	for {
		beat()
		select {
		case <-ctx.Done():
			s.pods.end()
			s.children.Close()
			return s.file.Close()
		case <-s.pods.wake:
		case <-timer.C():
		}
		timer.Reset(s.start(ctx))
	}
}

// mostLoop is the longest that the loop waits: a clock that is set wakes nothing.
const mostLoop = 20 * time.Second

// start launches the passes that are due and returns how long there is nothing
// more to launch.
func (s *Service) start(ctx context.Context) time.Duration {
	wait := mostLoop
	s.pods.mu.Lock()
	defer s.pods.mu.Unlock()
	now := s.clock.Now() // not before the end of a pass that is known here
	for _, w := range s.pods.all {
		for _, l := range w.open() {
			begins, after := l.next(now)
			if after > 0 {
				wait = min(wait, after)
			}
			if !begins {
				continue
			}
			l.begin()
			p, volumes := w.pod, slices.Clone(l.volumes)
			s.pods.passes.Go(func() { s.pass(ctx, w, l, p, volumes) })
		}
	}
	return wait
}

// pass makes sure of these volumes of a pod, those of a lane, or removes all of them. A pass
// that hangs on a file system hangs alone, and its pod's item says on what.
func (s *Service) pass(ctx context.Context, w *podWork, l *lane, p *v1.Pod, volumes []string) {
	slow := time.AfterFunc(slowPass, func() {
		s.pods.mu.Lock()
		if l.stage == running {
			l.stage = late
		}
		s.pods.mu.Unlock()
		s.pods.publish(ctx, w)
	})
	defer slow.Stop()
	var due time.Time
	gone := false
	if l == &w.removal {
		due, gone = s.maker.remove(ctx, w)
	} else {
		due = s.maker.setUp(ctx, w, p, volumes)
	}
	s.pods.mu.Lock()
	if gone {
		delete(s.pods.all, w.uid)
		s.maker.in.certificates.Drop(w.uid)
		s.pods.owned.Delete(ctx, string(w.uid))
	}
	l.rest(due, s.clock.Now())
	others := w.running()
	s.pods.mu.Unlock()
	if !others { // else the end of the last of them says the rest, or that it is late
		s.pods.publish(ctx, w)
	}
	s.pods.wake.Send()
}
