// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
)

// loopConfig are the values a loop works with.
type loopConfig struct {
	// rootDir and podLogsDir are searched for what unknown pods left.
	rootDir, podLogsDir string
}

// loopDeps is what a loop works with.
type loopDeps struct {
	in         *Inputs
	config     *currentConfig
	lookups    *lookups
	journal    *journal.Journal
	sandboxes  Sandboxes
	containers Containers
	volume     volumes
	resource   resources
	pleg       observer
	states     *feed.Owner[*podworkerv1.PodState]
	events     actuate.Recorder
	clock      clock.WithTicker
	metrics    *metrics
	log        *slog.Logger
	// end is the end of the node.
	end *nodeEnd
	// serving is called once the feed is complete, waiting with what is missing,
	// beat each time the loop comes round.
	serving func()
	waiting func(what string)
	beat    func()
}

// loop holds one worker for every pod there is.
type loop struct {
	loopDeps
	cfg    loopConfig
	layout pod.Layout

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	workers map[types.UID]*worker
	// claims: the static pod that holds a full name, from admission until it is
	// released.
	claims map[string]types.UID
	// changes of the topics that workers wait for.
	changes changes
	// forgotten are pods of which the replica of pleg.pods may still get, or have, a record
	// of before.
	forgotten map[types.UID]departed
	restored  map[types.UID]journal.Record
	complete  bool
	// resourcesChanged is when those facts last did.
	resourcesChanged time.Time
	nodeKnown        bool
	swept            int // leftovers that are gone since the last search
	running          sync.WaitGroup
	// excess are dead containers of which the node has too many in all, by ID.
	excess map[string]bool
}

func newLoop(cfg loopConfig, deps loopDeps) *loop {
	l := &loop{
		loopDeps: deps, cfg: cfg, layout: pod.Layout{Root: cfg.rootDir},
		workers: map[types.UID]*worker{}, claims: map[string]types.UID{}, forgotten: map[types.UID]departed{},
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
	w := newWorker(l, uid, record, kept, found)
	l.workers[uid] = w
	l.running.Go(func() { w.run(l.ctx) })
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

// run works until ctx ends.
func (l *loop) run(ctx context.Context) error {
	if err := l.recall(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-l.config.known:
	}
	l.waiting("config.sources, pleg.pods")
	defer l.running.Wait()
	l.running.Go(func() { l.end.run(ctx, l, l.touchAll) })
	l.mu.Lock()
	l.ctx = ctx
	uids := map[types.UID]bool{}
	for uid := range l.restored {
		uids[uid] = true
	}
	for uid := range l.in.Pods.Items() {
		uids[types.UID(uid)] = true
	}
	for uid := range l.in.Records.Items() {
		uids[types.UID(uid)] = true
	}
	for uid := range uids {
		l.considerLocked(uid, nil)
	}
	l.mu.Unlock()
	l.settle()
	ticker := l.clock.NewTicker(leftoverPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			l.leftovers()
			l.reconsider()
			l.countDead()
			l.reportUncollected(ctx)
			l.beat()
		}
	}
}

// recall reads the journal.
func (l *loop) recall() error {
	records, err := l.journal.All()
	if err != nil {
		return err
	}
	raw, err := l.journal.Config()
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.restored = records
	l.mu.Unlock()
	if raw == nil || l.config.Config() != nil {
		return nil
	}
	c, err := kubeletconfig.Unmarshal(raw)
	if err != nil {
		l.log.Warn("kept configuration is of no use", service.KeyError, err.Error())
		return nil
	}
	l.end.configure(c)
	l.config.set(c)
	return nil
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
	ready := !l.complete && l.ctx != nil && len(l.restored) == 0
	for _, w := range l.workers {
		ready = ready && w.published
	}
	for uid := range l.in.Pods.Items() {
		_, ok := l.workers[types.UID(uid)]
		ready = ready && ok
	}
	l.complete = l.complete || ready
	ctx := l.ctx
	l.mu.Unlock()
	if !ready {
		return
	}
	l.end.stir()
	l.states.SetComplete(ctx, true)
	l.serving()
	l.running.Go(l.leftovers) // not in the replica's goroutine: the disk may hang
}

// retire ends a worker whose pod is forgotten.
func (l *loop) retire(w *worker) {
	defer l.settle()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers[w.uid] == w {
		delete(l.workers, w.uid)
	}
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
