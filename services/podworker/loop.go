// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
)

// loopConfig are the values a loop works with.
type loopConfig struct {
	// rootDir and podLogsDir are searched for what unknown pods left.
	rootDir, podLogsDir string
}

// loop holds one worker for every pod there is; ledger.mu guards what changes.
type loop struct {
	*ledger
	cfg    loopConfig
	layout pod.Layout
	// completed has the first search for leftovers begin.
	completed signal.Signal

	ctx     context.Context // of run; nil before
	workers map[types.UID]*worker
	// forgotten are pods of which the replica of pleg.pods may still get, or have, a record
	// of before.
	forgotten map[types.UID]departed
	restored  map[types.UID]journal.Record
	nodeKnown bool
	swept     int // leftovers that are gone since the last search
}

func newLoop(cfg loopConfig, deps loopDeps) *loop {
	l := &loop{
		ledger: newLedger(deps), cfg: cfg, layout: pod.Layout{Root: cfg.rootDir}, completed: signal.New(),
		workers: map[types.UID]*worker{}, forgotten: map[types.UID]departed{},
	}
	l.watch()
	return l
}

// watch wakes the workers whose facts change.
func (l *loop) watch() {
	in := l.in
	in.Pods.Watch(func(keys []string) { l.touched(keys); l.changed(revisions) })
	in.Records.Watch(func(keys []string) { l.touched(keys); l.changed(fullNames) })
	in.Volumes.Watch(func(keys []string) { l.touched(keys); l.changed(revisions) })
	in.Allocations.Watch(func(keys []string) { l.touched(keys); l.changed(revisions); l.resourceChange() })
	in.Verdicts.Watch(l.touched)
	in.Sources.Watch(func([]string) { l.touchAll(); l.settle() })
	in.Runtime.Watch(func([]string) { l.touchAll() })
	in.Node.Watch(func([]string) { l.resourceChange() })
	in.Objects.Watch(l.objectChange)
	in.Secrets.Watch(l.objectChange)
	in.Kubelet.Watch(func([]string) { l.reconfigure() })
	in.Reports.Watch(func([]string) { l.end.stir() })
}

func (l *loop) touched(keys []string) {
	for _, key := range keys {
		l.consider(types.UID(key))
	}
	if len(keys) == 0 {
		l.touchAll() // completeness, or the epoch
	}
	l.settle()
}

// consider wakes the worker of a pod, or makes one if there is anything to do.
func (l *loop) consider(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.considerLocked(uid, nil)
}

func (l *loop) considerLocked(uid types.UID, found *v1.Pod) {
	if w, ok := l.workers[uid]; ok {
		w.poke()
		return
	}
	if l.ctx == nil || l.ctx.Err() != nil {
		return
	}
	if err := pod.CheckUID(uid); err != nil { // config refuses such a pod, but a sandbox may have any label
		l.log.Error("pod left alone", service.KeyUID, string(uid), service.KeyError, err.Error())
		return
	}
	record, kept := l.restored[uid]
	delete(l.restored, uid)
	listed, _ := l.in.desired(uid, record.Source)
	observed := l.forgotten[uid].shows(l.in.Records, uid)
	if observed {
		delete(l.forgotten, uid)
	}
	if listed == nil && !observed && !kept && found == nil {
		return
	}
	w := newWorker(l.ledger, l.settle, uid, record, kept, found)
	l.workers[uid] = w
	l.running.Go(func() {
		if w.run(l.ctx) {
			l.retire(w)
		}
	})
}

func (l *loop) touchAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.touchAllLocked()
}

func (l *loop) touchAllLocked() {
	for _, w := range l.workers {
		w.poke()
	}
}

// resourceChange notes that the node's resources, or what is held of them, changed.
func (l *loop) resourceChange() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resourcesChanged = l.clock.Now()
	_, known := l.in.Node.Get("node")
	first := known && !l.nodeKnown // containers wait for it
	l.nodeKnown = known
	l.changedLocked(nodeResources)
	if first {
		l.touchAllLocked()
	}
}

// objectChange notes which pods name an object that changed.
func (l *loop) objectChange(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.workers {
		if len(keys) == 0 || slices.ContainsFunc(keys, func(key string) bool { return w.names[key] }) {
			w.objectsChanged = l.clock.Now()
		}
	}
	l.changedLocked(apiObjects)
}

// reconfigure takes over the configuration and keeps it for the next start.
func (l *loop) reconfigure() {
	c, ok := l.in.Kubelet.Get("kubelet")
	if !ok {
		return
	}
	if err := l.journal.SaveConfig(c.raw); err != nil {
		l.log.Warn("configuration not kept", service.KeyError, err.Error())
	}
	l.end.configure(c.Config)
	l.config.set(c.Config)
	l.touchAll()
}

// settle declares the feed complete once every pod that is known anywhere has
// been looked at.
func (l *loop) settle() {
	l.mu.Lock()
	done := l.complete || l.ctx == nil
	l.mu.Unlock()
	if done || !l.in.sourcesComplete() || !l.in.Records.Listed() {
		return
	}
	l.mu.Lock()
	ready := !l.complete && l.seenLocked()
	l.complete = l.complete || ready
	ctx := l.ctx
	l.mu.Unlock()
	if !ready {
		return
	}
	l.end.stir()
	l.states.SetComplete(ctx, true)
	l.serving()
	l.completed.Send() // not in the replica's goroutine: the disk may hang
}

// seenLocked reports whether every pod that config lists now, or that an earlier process had,
// has been looked at.
func (l *loop) seenLocked() bool {
	seen := l.ctx != nil && len(l.restored) == 0
	for _, w := range l.workers {
		seen = seen && w.published
	}
	for uid := range l.in.Pods.Items() {
		_, ok := l.workers[types.UID(uid)]
		seen = seen && ok
	}
	return seen
}

// retire ends a worker whose pod is forgotten.
func (l *loop) retire(w *worker) {
	defer l.settle()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers[w.uid] == w {
		delete(l.workers, w.uid)
		delete(l.inactive, w.uid)
	}
	l.heedLocked(w.mailbox, [topics]bool{})
	if w.leftover {
		l.swept++
	}
	l.forgotten[w.uid] = departed{barrier: w.fresh.since, removed: w.facts.Removed, at: l.clock.Now()}
	maps.DeleteFunc(l.forgotten, func(uid types.UID, d departed) bool { return d.over(l.in.Records, uid) })
	d, _ := l.in.desired(w.uid, w.spec.source)
	if d != nil {
		l.metrics.restarted.WithLabelValues(staticLabel(d.Pod)).Inc()
	}
	if d != nil || w.poked() {
		l.considerLocked(w.uid, nil)
	}
}
