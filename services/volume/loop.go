package volume

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/rpc"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/content"
)

// slowPass is how long a pass may take before its pod's item says where it is.
const slowPass = time.Second

// podWork is one pod's volumes. Its fields are guarded by Service.mu, but for
// failed, which belongs to the pass: one goroutine per pod at a time.
type podWork struct {
	uid         types.UID
	pod         *v1.Pod // nil: found on disk
	found       []string
	withdrawing bool
	leaving     context.Context // ends when it is withdrawn
	leave       context.CancelFunc
	asked       time.Time // when pod was declared as it is

	dirty   bool
	running bool
	due     time.Time // of the next pass without a cause; zero for none

	volumes map[string]*volumeWork // by name
	// needs are the objects each volume was last made of, by config's keys.
	needs map[string]map[string]bool
	// attach are the attach controller's names of the volumes that must be attached.
	attach map[string]string
	// expansions are what claims are to say of the volumes' sizes, and do not say yet.
	expansions map[string]*volumev1.ClaimExpansion
	stuck      *volumeWork // a removal that failed
	failed     int         // removals that failed in a row
}

func newWork(uid types.UID) *podWork {
	w := &podWork{uid: uid}
	w.leaving, w.leave = context.WithCancel(context.Background())
	return w
}

// declare notes that a pod is to have its volumes.
func (s *Service) declare(ctx context.Context, p *v1.Pod) (feed.Revision, error) {
	s.turns.LockKey(string(p.UID))
	defer s.turns.UnlockKey(string(p.UID)) //nolint:errcheck // it is locked
	s.mu.Lock()
	w := s.pods[p.UID]
	withdrawing := w != nil && w.withdrawing
	known := w != nil && w.pod != nil
	same := known && equality.Semantic.DeepEqual(w.pod, p)
	s.mu.Unlock()
	if withdrawing {
		return feed.Revision{}, rpc.Conflict.Errorf("pod %s: its volumes are being withdrawn", p.UID)
	}
	if !same {
		if err := s.save(p.UID, p, false); err != nil {
			return feed.Revision{}, err
		}
		var standing map[string]*volumeWork
		if !known {
			standing = s.standing(p)
		}
		s.mu.Lock()
		if w == nil {
			w = newWork(p.UID)
			s.pods[p.UID] = w
		}
		if !known {
			w.volumes = standing
		}
		w.pod, w.found, w.dirty, w.asked = p, nil, true, s.now()
		s.mu.Unlock()
		s.look()
	}
	if !known {
		// Listed from this revision on, even if nothing has been done yet.
		s.publish(ctx, w)
	}
	revision, _, _ := s.owned.State()
	return revision, nil
}

// withdraw notes that a pod's volumes are to go.
func (s *Service) withdraw(ctx context.Context, uid types.UID) (feed.Revision, error) {
	s.turns.LockKey(string(uid))
	defer s.turns.UnlockKey(string(uid)) //nolint:errcheck // it is locked
	s.mu.Lock()
	w := s.pods[uid]
	s.mu.Unlock()
	if w != nil {
		if !w.withdrawing { // only commands write it
			if err := s.save(uid, w.pod, true); err != nil {
				return feed.Revision{}, err
			}
		}
		s.mu.Lock()
		w.withdrawing, w.dirty = true, true
		w.leave()
		s.mu.Unlock()
		s.publish(ctx, w)
		s.look()
	}
	revision, _, _ := s.owned.State()
	return revision, nil
}

func (s *Service) look() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// objectsChanged looks again at every pod with a volume made of one of these
// objects, by config's keys: kind/namespace/name.
func (s *Service) objectsChanged(keys []string) {
	s.again(func(w *podWork) bool {
		return slices.ContainsFunc(keys, w.depends)
	})
}

// depends tells whether a pod has a volume made of an object, whether or not that
// was looked up already.
func (w *podWork) depends(key string) bool {
	for _, needs := range w.needs {
		if needs[key] {
			return true
		}
	}
	parts := strings.SplitN(key, "/", 3)
	return len(parts) == 3 && content.Depends(w.pod, parts[0], parts[1], parts[2])
}

// nodeChanged looks again at every pod with a volume that depends on what the
// node can allocate.
func (s *Service) nodeChanged(keys []string) {
	if len(keys) > 0 {
		s.again(func(w *podWork) bool { return content.DependsOnNode(w.pod) })
	}
}

// freed looks again at every pod with a volume that failed: what hung may answer.
func (s *Service) freed() {
	s.mu.Lock()
	for _, w := range s.pods {
		w.dirty = w.dirty || w.stuck != nil
		for _, v := range w.volumes {
			w.dirty = w.dirty || v.err != nil
		}
	}
	s.mu.Unlock()
	s.look()
}

func (s *Service) again(concerns func(*podWork) bool) {
	any := false
	s.mu.Lock()
	for _, w := range s.pods {
		if w.pod != nil && !w.withdrawing && concerns(w) {
			w.dirty, any = true, true
		}
	}
	s.mu.Unlock()
	if any {
		s.look()
	}
}

// loop starts a pass for every pod that needs one.
func (s *Service) loop(ctx context.Context) error {
	beat := s.kit.Heart("volumes", time.Minute)
	s.mu.Lock()
	restored := slices.Collect(maps.Values(s.pods))
	s.mu.Unlock()
	for _, w := range restored {
		s.publish(ctx, w)
	}
	s.owned.SetComplete(ctx, true)
	s.kit.Serving()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		beat()
		select {
		case <-ctx.Done():
			return s.end()
		case <-s.wake:
		case <-timer.C:
		}
		timer.Reset(s.start(ctx))
	}
}

// end lets passes come to their end, but for those that hang.
func (s *Service) end() error {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.passes.Wait(); close(done) }()
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	}
	s.children.Close()
	return s.file.Close()
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
		p, withdrawing := w.pod, w.withdrawing
		s.passes.Go(func() { s.pass(ctx, w, p, withdrawing) })
	}
	return wait
}

// pass makes one pod's volumes, or removes them. A pass that hangs on a file
// system hangs alone, and its pod's item says on what.
func (s *Service) pass(ctx context.Context, w *podWork, p *v1.Pod, withdrawing bool) {
	slow := time.AfterFunc(slowPass, func() { s.publish(ctx, w) })
	defer slow.Stop()
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
		s.certificates.Drop(w.uid)
		s.owned.Delete(ctx, string(w.uid))
	}
	w.due = due
	s.mu.Unlock()
	s.publish(ctx, w)
	s.look()
}

// remove takes a pod's volumes away; the journal forgets it last.
func (s *Service) remove(ctx context.Context, w *podWork) (due time.Time, gone bool) {
	err := fault.Hit(ctx, "volume.remove")
	if err == nil {
		began := s.now()
		if err = s.unmountDriven(ctx, w.uid); err == nil {
			err = s.host.Remove(w.uid)
		}
		if err == nil {
			err = s.releaseDisks(ctx, w.uid)
		}
		s.removed(w, err, began)
	}
	if err == nil {
		err = s.journal.Delete(string(w.uid))
	}
	if err == nil {
		return time.Time{}, true
	}
	s.kit.Log.Error("volumes not removed", "uid", string(w.uid), "error", err.Error())
	w.failed++
	now := s.now()
	due = now.Add(backoff(w.failed))
	stuck := &volumeWork{state: volumev1.VolumeState_VOLUME_STATE_UNMOUNTING, step: "remove", err: err, since: now, retry: due}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.stuck != nil {
		stuck.since = w.stuck.since
	}
	w.stuck = stuck
	return due, false
}

// removed measures a try to remove a pod's volumes.
func (s *Service) removed(w *podWork, err error, began time.Time) {
	s.mu.Lock()
	p, found := w.pod, w.found
	s.mu.Unlock()
	if p != nil {
		s.metrics.unmounted(p, err, s.now().Sub(began))
		return
	}
	s.metrics.forced.Add(float64(len(found)))
	if err != nil {
		s.metrics.forcedErrors.Add(float64(len(found)))
	}
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
