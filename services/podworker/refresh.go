// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
)

// refreshes is how soon pleg is asked again: it is back a quarter of a second after it was
// killed.
var refreshes = backoff.Doubling{Least: 50 * time.Millisecond, Most: time.Second}

// refresh asks pleg for a record of now; one request at a time.
func (w *worker) refresh(ctx context.Context) {
	f := &w.fresh
	if f.refresh != noRefresh {
		if f.asked != f.changes.made {
			f.refresh = refreshAgain
		}
		return
	}
	if w.l.clock.Now().Before(f.retryAt) {
		return
	}
	if f.changes.current() {
		f.lists.made++ // it is looked for what happened without an act
	}
	f.refresh, f.retryAt, f.asked = refreshing, time.Time{}, f.changes.made
	changes, creates, lists := f.changes.made, f.creates.made, f.lists.made
	made, removed := len(f.made), len(f.removed)
	inventory := f.inventory()
	before, _, _, _ := w.l.in.Records.State()
	go func() {
		record, revision, err := refreshed(ctx, w.l.pleg, w.l.in.Records, w.uid, inventory)
		w.post(func() {
			again := f.refresh == refreshAgain
			f.refresh = noRefresh
			if ctx.Err() != nil {
				return
			}
			f.failure = ""
			if err != nil {
				f.failure = err.Error()
				f.failures++
				f.retryAt = w.l.clock.Now().Add(refreshes.After(f.failures))
				if rpc.Is(err, rpc.Denied) {
					w.l.log.Error("record refused", service.KeyUID, string(w.uid), service.KeyError, err.Error())
				}
				return
			}
			if f.creates.observed == 0 && creates > 0 && (record == nil || !record.Alive()) {
				w.l.suspect(ctx, w.uid) // what was begun last, perhaps by a former process, may be under way
			}
			f.failures = 0
			f.refreshed(record, feed.NewBarrier(revision, before))
			f.changes.observed, f.creates.observed = changes, creates
			if inventory == nil {
				f.lists.observed = lists
			}
			f.made, f.removed = f.made[made:], f.removed[removed:]
			if again {
				w.refresh(ctx)
			}
		})
	}()
}

// suspicions are how long after a call was given up the runtime is asked, again and
// again, what has become of it: a cancelled call may be carried out all the same, and
// its event may be lost with it (containerd 2). Then pleg's own relist comes.
var suspicions = []time.Duration{time.Second, 3 * time.Second, 9 * time.Second, 27 * time.Second}

// suspect has pleg read a pod again for a while. What it finds wakes the pod's worker,
// or makes one for a pod that was forgotten.
func (l *ledger) suspect(ctx context.Context, uid types.UID) {
	l.running.Go(func() {
		for _, wait := range suspicions {
			timer := l.clock.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C():
			}
			if _, _, err := refreshed(ctx, l.pleg, l.in.Records, uid, nil); err != nil && ctx.Err() == nil {
				l.log.Debug("pod not read again", service.KeyUID, string(uid), service.KeyError, err.Error())
			}
		}
	})
}
