package volume

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/rpc"
)

// podWork is one pod's volumes. Its fields are guarded by Service.mu, but for
// those of a pass, which one goroutine per pod makes at a time.
type podWork struct {
	uid         types.UID
	pod         *v1.Pod // nil: found on disk
	found       []string
	withdrawing bool
	finished    map[string]bool

	dirty   bool
	running bool
	due     time.Time // of the next pass without a cause; zero for none

	volumes map[string]*volumeWork // of the pass
	failed  int                    // removals that failed in a row
}

// declare notes that a pod is to have its volumes.
func (s *Service) declare(ctx context.Context, p *v1.Pod) (feed.Revision, error) {
	s.mu.Lock()
	w := s.pods[p.UID]
	switch {
	case w == nil:
		w = &podWork{uid: p.UID, finished: map[string]bool{}}
	case w.withdrawing:
		s.mu.Unlock()
		return feed.Revision{}, rpc.Conflict.Errorf("pod %s: its volumes are being withdrawn", p.UID)
	case w.pod != nil && equality.Semantic.DeepEqual(w.pod, p):
		s.mu.Unlock()
		revision, _, _ := s.owned.State()
		return revision, nil
	}
	fresh := w.pod == nil
	was := w.pod
	w.pod, w.found = p, nil
	if err := s.save(w); err != nil {
		w.pod = was
		s.mu.Unlock()
		return feed.Revision{}, err
	}
	s.pods[p.UID] = w
	w.dirty = true
	s.mu.Unlock()
	if fresh {
		// Listed from this revision on, even if nothing has been done yet.
		if err := s.publish(ctx, w); err != nil {
			return feed.Revision{}, err
		}
	}
	s.look()
	revision, _, _ := s.owned.State()
	return revision, nil
}

// withdraw notes that a pod's volumes are to go.
func (s *Service) withdraw(ctx context.Context, uid types.UID) (feed.Revision, error) {
	s.mu.Lock()
	w := s.pods[uid]
	if w == nil {
		s.mu.Unlock()
		revision, _, _ := s.owned.State()
		return revision, nil
	}
	if !w.withdrawing {
		w.withdrawing = true
		if err := s.save(w); err != nil {
			w.withdrawing = false
			s.mu.Unlock()
			return feed.Revision{}, err
		}
	}
	w.dirty = true
	s.mu.Unlock()
	if err := s.publish(ctx, w); err != nil {
		return feed.Revision{}, err
	}
	s.look()
	revision, _, _ := s.owned.State()
	return revision, nil
}

func (s *Service) look() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// objectsChanged looks again at every pod that holds files: which of them
// depend on the object is found by making the files, which changes nothing that
// is equal.
func (s *Service) objectsChanged([]string) {
	s.mu.Lock()
	for _, w := range s.pods {
		if w.pod != nil && !w.withdrawing && dependsOnObjects(w.pod) {
			w.dirty = true
		}
	}
	s.mu.Unlock()
	s.look()
}

// loop starts a pass for every pod that needs one.
func (s *Service) loop(ctx context.Context) error {
	beat := s.kit.Heart("volumes", time.Minute)
	s.mu.Lock()
	restored := make([]*podWork, 0, len(s.pods))
	for _, w := range s.pods {
		restored = append(restored, w)
	}
	s.mu.Unlock()
	for _, w := range restored {
		if err := s.publish(ctx, w); err != nil {
			return err
		}
	}
	s.owned.SetComplete(ctx, true)
	s.kit.Serving()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		beat()
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		timer.Reset(s.start(ctx))
	}
}

// start launches the passes that are due and returns how long there is nothing
// more to launch.
func (s *Service) start(ctx context.Context) time.Duration {
	wait := 20 * time.Second
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.pods {
		if w.running {
			continue
		}
		if !w.due.IsZero() && !now.Before(w.due) {
			w.dirty, w.due = true, time.Time{}
		}
		if !w.dirty {
			if !w.due.IsZero() {
				wait = min(wait, max(w.due.Sub(now), time.Millisecond))
			}
			continue
		}
		w.dirty, w.running, w.due = false, true, time.Time{}
		go s.pass(ctx, w, w.pod, w.withdrawing)
	}
	return wait
}

// pass makes one pod's volumes, or removes them. A pass that hangs on a file
// system hangs alone.
func (s *Service) pass(ctx context.Context, w *podWork, p *v1.Pod, withdrawing bool) {
	var due time.Time
	gone := false
	if withdrawing {
		due, gone = s.remove(ctx, w)
	} else if p != nil {
		due = s.setUp(ctx, w, p)
	}
	s.mu.Lock()
	w.running = false
	if gone {
		delete(s.pods, w.uid)
		s.owned.Delete(ctx, string(w.uid))
	}
	if !due.IsZero() && (w.due.IsZero() || due.Before(w.due)) {
		w.due = due
	}
	s.mu.Unlock()
	if !gone {
		if err := s.publish(ctx, w); err != nil {
			s.kit.Log.Error("publish", "uid", string(w.uid), "error", err.Error())
		}
	}
	s.look()
}

// remove takes a pod's volumes away; the journal forgets it last.
func (s *Service) remove(ctx context.Context, w *podWork) (due time.Time, gone bool) {
	err := s.host.Remove(w.uid)
	if err == nil {
		err = s.journal.Delete(string(w.uid))
	}
	if err == nil {
		return time.Time{}, true
	}
	w.failed++
	s.kit.Log.Error("volumes not removed", "uid", string(w.uid), "error", err.Error())
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		w.volumes = map[string]*volumeWork{"": {step: "remove", err: err, since: s.now()}}
	}
	return s.now().Add(backoff(w.failed)), false
}

// backoff after n failures in a row: 0.5 s doubling to 2 min 2 s, the kubelet's
// for volume operations.
func backoff(n int) time.Duration {
	const least, most = 500 * time.Millisecond, 2*time.Minute + 2*time.Second
	d := least
	for ; n > 1 && d < most; n-- {
		d *= 2
	}
	return min(d, most)
}

var errUnsupported = errors.New("this volume plugin is not supported")
