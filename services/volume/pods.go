// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/signal"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// pods are those that have volumes, and what is published of them. Safe for concurrent use.
type pods struct {
	owned  *feed.Owner[*volumev1.PodVolumes]
	events *feed.Events
	now    func() time.Time
	log    *slog.Logger

	wake   signal.Signal
	passes sync.WaitGroup // begun under mu

	mu     sync.Mutex
	all    map[types.UID]*podWork
	ending bool // no more passes begin
}

func newPods(owned *feed.Owner[*volumev1.PodVolumes], events *feed.Events, now func() time.Time, log *slog.Logger) *pods {
	return &pods{owned: owned, events: events, now: now, log: log, wake: signal.New(), all: map[types.UID]*podWork{}}
}

// get is a pod's work, nil for none.
func (ps *pods) get(uid types.UID) *podWork {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.all[uid]
}

// again touches every pod that is declared.
func (ps *pods) again(touch func(*podWork)) {
	ps.mu.Lock()
	for _, w := range ps.all {
		if w.pod != nil && !w.withdrawing {
			touch(w)
		}
	}
	ps.mu.Unlock()
	ps.wake.Send()
}

// objectsChanged has another pass for every volume made of one of these objects, by
// config's keys.
func (ps *pods) objectsChanged(keys []string) {
	ps.again(func(w *podWork) { w.touchMadeOf(keys) })
}

// freed has another pass for every pod with a volume that failed: what hung may answer.
func (ps *pods) freed() {
	ps.mu.Lock()
	for _, w := range ps.all {
		failed := w.stuck != nil
		for _, v := range w.volumes {
			failed = failed || v.err != nil
		}
		if failed {
			w.touch()
		}
	}
	ps.mu.Unlock()
	ps.wake.Send()
}

// background runs f, which the service waits for when it ends, unless it is ending.
func (ps *pods) background(f func()) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if !ps.ending {
		ps.passes.Go(f)
	}
}

// end lets passes come to their end, but for those that hang.
func (ps *pods) end() {
	ps.mu.Lock()
	ps.ending = true
	ps.mu.Unlock()
	done := make(chan struct{})
	go func() { ps.passes.Wait(); close(done) }()
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	}
}

// publish writes a pod's item, unless the pod is gone by now.
func (ps *pods) publish(ctx context.Context, w *podWork) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.all[w.uid] != w {
		return
	}
	if _, err := ps.owned.Set(ctx, string(w.uid), w.item()); err != nil {
		ps.log.Error("publish", "uid", string(w.uid), "error", err.Error())
	}
}

// publishAll writes the items of all pods.
func (ps *pods) publishAll(ctx context.Context) {
	ps.mu.Lock()
	all := slices.Collect(maps.Values(ps.all))
	ps.mu.Unlock()
	for _, w := range all {
		ps.publish(ctx, w)
	}
}

// emit emits an event about a pod or a claim.
func (ps *pods) emit(ctx context.Context, about *eventv1.ObjectReference, kind, reason, message string) {
	err := ps.events.Emit(ctx, &eventv1.Event{Object: about, Type: kind, Reason: reason, Message: message, Time: timestamppb.New(ps.now())})
	if err != nil {
		ps.log.Error("event", "uid", about.GetUid(), "error", err.Error())
	}
}

// declared is a pod as it was declared, nil for none.
func (ps *pods) declared(uid types.UID) *v1.Pod {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if w := ps.all[uid]; w != nil {
		return w.pod
	}
	return nil
}
