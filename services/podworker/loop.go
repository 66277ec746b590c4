package podworker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/kubeconf"
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
	// claims: the pod that holds a full name, from admission until it is released.
	claims map[string]types.UID
	// buried are pods that were forgotten at a revision of pleg.pods the mirror
	// may not have reached yet.
	buried   map[types.UID]mark
	restored map[types.UID]journal.Record
	complete bool
	// objectsChanged and resourcesChanged are when those facts last did.
	objectsChanged, resourcesChanged time.Time
	nodeKnown                        bool
	config                           *kubeconf.Config
	configured                       chan struct{} // closed when the configuration is known
	swept                            int           // leftovers that are gone since the last search
	running                          sync.WaitGroup
	// surplus are dead containers of which the node has too many in all, by ID.
	surplus map[string]bool
}

func newLoop(cfg loopConfig, deps loopDeps) *loop {
	l := &loop{
		loopDeps: deps, cfg: cfg, layout: pod.Layout{Root: cfg.rootDir},
		workers: map[types.UID]*worker{}, claims: map[string]types.UID{}, buried: map[types.UID]mark{},
		configured: make(chan struct{}),
	}
	l.end.pods, l.end.changed = l, l.touchAll
	l.watch()
	return l
}

// watch wakes the workers whose facts change.
func (l *loop) watch() {
	in := l.in
	in.Pods.Watch(l.touched)
	in.Records.Watch(l.touched)
	in.Volumes.Watch(l.touched)
	in.Allocations.Watch(func(keys []string) { l.touched(keys); l.resourceChange() })
	in.Verdicts.Watch(l.touched)
	in.Sources.Watch(func([]string) { l.touchAll(); l.settle() })
	in.Runtime.Watch(func([]string) { l.touchAll() })
	in.Node.Watch(func([]string) { l.resourceChange() })
	in.Objects.Watch(func([]string) { l.objectChange() })
	in.Secrets.Watch(func([]string) { l.objectChange() })
	in.Kubelet.Watch(func([]string) { l.reconfigure() })
	in.Reports.Watch(func([]string) { l.end.stir() })
}

func (l *loop) touched(keys []string) {
	for _, key := range keys {
		l.consider(types.UID(key))
	}
	if len(keys) == 0 {
		l.touchAll() // completeness changed
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
	record, kept := l.restored[uid]
	delete(l.restored, uid)
	listed, _ := l.in.desired(uid, record.Source)
	_, observed := l.in.Records.Get(string(uid))
	if grave, ok := l.buried[uid]; ok && observed {
		revision, complete, _, _ := l.in.Records.State()
		if observed = grave.reached(revision, complete); observed {
			delete(l.buried, uid)
		}
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
	for _, w := range l.workers {
		w.poke()
	}
}

// resourceChange and objectChange wake only those who wait for such a change:
// on a full node there are many changes, and few who care.
func (l *loop) resourceChange() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resourcesChanged = l.clock.Now()
	_, known := l.in.Node.Get("node")
	first := known && !l.nodeKnown // containers wait for it
	l.nodeKnown = known
	for _, w := range l.workers {
		if w.heedsResources || first {
			w.poke()
		}
	}
}

func (l *loop) objectChange() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.objectsChanged = l.clock.Now()
	for _, w := range l.workers {
		if w.heedsObjects {
			w.poke()
		}
	}
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
	l.configure(c.Config)
	l.touchAll()
}

func (l *loop) configure(c *kubeconf.Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end.configure(c)
	if l.config == nil {
		close(l.configured)
	}
	l.config = c
}

// Config is the effective configuration; nil until it is known.
func (l *loop) Config() *kubeconf.Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.config
}

// run works until ctx ends.
func (l *loop) run(ctx context.Context) error {
	if err := l.recall(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-l.configured:
	}
	l.waiting("config.sources, pleg.pods")
	defer l.running.Wait()
	l.running.Go(func() { l.end.run(ctx) })
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
			l.countDead()
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
	known := l.config != nil
	l.mu.Unlock()
	if raw == nil || known {
		return nil
	}
	c, err := kubeconf.Unmarshal(raw)
	if err != nil {
		l.log.Warn("kept configuration is of no use", service.KeyError, err.Error())
		return nil
	}
	l.configure(c)
	return nil
}

// sourcesComplete tells whether every configured source of pods was read.
func (l *loop) sourcesComplete() bool {
	if !l.in.Pods.Complete() || !l.in.Sources.Complete() {
		return false
	}
	for _, s := range l.in.Sources.Items() {
		if !s.GetComplete() {
			return false
		}
	}
	return true
}

// settle declares the feed complete once every pod that is known anywhere has
// been looked at.
func (l *loop) settle() {
	l.mu.Lock()
	done := l.complete || l.ctx == nil
	l.mu.Unlock()
	if done || !l.sourcesComplete() || !l.in.Records.Complete() {
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
	l.leftovers()
}

// claim takes a full name for a pod; it returns who holds it instead.
func (l *loop) claim(name string, uid types.UID) types.UID {
	for _, r := range l.in.Records.Items() {
		if r.UID != uid && pod.BuildFullName(r.Name, r.Namespace) == name && r.Alive() {
			return r.UID
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder, ok := l.claims[name]; ok && holder != uid {
		return holder
	}
	l.claims[name] = uid
	return ""
}

// unclaim gives a full name back and wakes those who may wait for it.
func (l *loop) unclaim(name string, uid types.UID) {
	l.mu.Lock()
	held := l.claims[name] == uid
	if held {
		delete(l.claims, name)
	}
	l.mu.Unlock()
	if held {
		l.touchAll()
	}
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
	l.buried[w.uid] = w.refreshed
	revision, complete, _, _ := l.in.Records.State()
	for uid, grave := range l.buried {
		if grave.reached(revision, complete) {
			delete(l.buried, uid)
		}
	}
	if d, _ := l.in.desired(w.uid, w.source); d != nil {
		l.metrics.restarted.WithLabelValues(staticLabel(d.Pod)).Inc()
		l.considerLocked(w.uid, nil)
	}
}
