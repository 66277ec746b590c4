// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"maps"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/images"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

const (
	// reclaimPoll is how often one looks whether what was to go is gone.
	reclaimPoll = 100 * time.Millisecond
	// reclaimPatience bounds the wait for it.
	reclaimPatience = 30 * time.Second
	// layerTime is how long the layers of containers may be there after these: a runtime
	// removes them after it has answered (containerd 2.4: up to 4 s were seen).
	layerTime = 5 * time.Second
)

// reclaimer frees what no pod needs when resource wants it (resource.v1.Reclaim), and
// says so in podworker.node.
type reclaimer struct {
	in   *Inputs
	loop *loop
	keep interface {
		RemoveUnused(ctx context.Context) error
	}
	known func() (images.Used, bool)
	clock clock.WithTicker
	wake  signal.Signal
}

func newReclaimer(l *loop, keep interface {
	RemoveUnused(ctx context.Context) error
}, known func() (images.Used, bool), clock clock.WithTicker) *reclaimer {
	r := &reclaimer{in: l.in, loop: l, keep: keep, known: known, clock: clock, wake: signal.New()}
	l.in.Node.Watch(func([]string) { r.wake.Send() })
	return r
}

// run works until ctx ends.
func (r *reclaimer) run(ctx context.Context) error {
	var last *timestamppb.Timestamp
	for {
		var again <-chan time.Time
		node, _ := r.in.Node.Get("node")
		if w := node.GetReclaim(); w.GetTime() != nil && (last == nil || !last.AsTime().Equal(w.GetTime().AsTime())) {
			if err := r.carryOut(ctx, w); err != nil {
				again = r.clock.After(retryPeriod)
			} else {
				last = w.GetTime()
				r.loop.end.reclaimed(last)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-again:
		}
	}
}

// carryOut frees what it can: what fails does not keep resource from going on.
func (r *reclaimer) carryOut(ctx context.Context, w *resourcev1.Reclaim) error {
	if err := fault.Hit(ctx, "podworker.reclaim"); err != nil {
		return err
	}
	if err := r.until(ctx, func() bool { _, ok := r.known(); return ok && r.loop.config.Config() != nil }); err != nil {
		return err
	}
	if w.GetContainers() {
		if err := r.removeDead(ctx); err != nil {
			return err
		}
	}
	if w.GetImages() {
		if err := r.keep.RemoveUnused(ctx); err != nil {
			r.loop.log.Warn("unused images not removed", service.KeyError, err.Error())
		}
	}
	return ctx.Err()
}

// removeDead removes dead containers, and waits until their layers are free as well.
func (r *reclaimer) removeDead(ctx context.Context) error {
	of := r.loop.discard()
	if len(of) == 0 {
		return nil
	}
	if err := r.until(ctx, func() bool { return !r.there(of) }); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.clock.After(layerTime):
		return nil
	}
}

// until waits for something, not without end; the error is that of ctx.
func (r *reclaimer) until(ctx context.Context, ok func() bool) error {
	ticker := r.clock.NewTicker(reclaimPoll)
	defer ticker.Stop()
	for late := r.clock.Now().Add(reclaimPatience); !ok() && r.clock.Now().Before(late); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
	return ctx.Err()
}

// there reports whether any of some containers is.
func (r *reclaimer) there(of map[string]types.UID) bool {
	for id, uid := range of {
		record, ok := r.in.Records.Get(string(uid))
		if !ok {
			continue
		}
		for _, c := range record.Containers {
			if c.ID == id {
				return true
			}
		}
	}
	return false
}

// discard has the dead containers of pods that are over removed, and returns them with
// their pods. Those of other pods are kept as ever.
func (l *loop) discard() map[string]types.UID {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, excess := map[string]types.UID{}, maps.Clone(l.excess)
	if excess == nil {
		excess = map[string]bool{}
	}
	for uid, w := range l.workers {
		if w.outward.state != step.Released {
			continue
		}
		record, _ := l.in.Records.Get(string(uid))
		if record == nil {
			continue
		}
		for _, c := range record.Containers {
			if c.State == step.Exited {
				of[c.ID], excess[c.ID] = uid, true
			}
		}
		w.poke()
	}
	l.excess = excess
	return of
}

// usedImages are those that must not be removed.
func (l *loop) usedImages() (images.Used, bool) { return l.in.usedImages(l.ended()) }

// ended are the pods that get no container any more. What one that is being ended has just
// made may not be in its record yet.
func (l *loop) ended() map[types.UID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[types.UID]bool{}
	for uid, w := range l.workers {
		switch w.outward.state {
		case step.Terminated, step.Released, step.Rejected:
			all[uid] = true
		}
	}
	return all
}

// reclaimed has podworker.node say what was carried out last.
func (e *nodeEnd) reclaimed(at *timestamppb.Timestamp) {
	e.mu.Lock()
	e.reclaim = at
	e.mu.Unlock()
	e.poke()
}
