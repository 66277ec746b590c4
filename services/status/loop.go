package status

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	"github.com/sextant-node/sextant/pkg/service"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/status/internal/gather"
	"github.com/sextant-node/sextant/services/status/internal/journal"
	"github.com/sextant-node/sextant/services/status/internal/plan"
	"github.com/sextant-node/sextant/services/status/internal/report"
)

// Keys of the feeds with one item.
const (
	runtimeKey = "runtime"
	nodeKey    = "node"
	imagesKey  = "images"
	kubeletKey = "kubelet"
)

const (
	// resync is how often every pod is looked at without a reason.
	resync = time.Minute
	// retryHeld is how often pods that are held are looked at again.
	retryHeld = time.Second
	// ask bounds a pull made in the middle of a gathering.
	ask = 500 * time.Millisecond
)

// podLoop renders the status of every pod and puts it on the desk.
type podLoop struct {
	in      *inputs
	desk    *report.Desk
	journal *journal.Journal
	reports *feed.Owner[*statusv1.PodReport]
	node    nodeView
	started *startTimes
	beat    func()
	log     *slog.Logger
	now     func() time.Time

	wake  chan struct{}
	mu    sync.Mutex
	dirty dirt

	// What follows belongs to Run's goroutine.
	pods map[string]*podEntry // by UID
	held map[string]bool      // UIDs
}

// nodeView is what pods need to know of the node.
type nodeView interface {
	// HostIPs of the node, the primary first.
	HostIPs() []string
	// Owner is the Node that owns mirror pods.
	Owner() plan.Node
	// Standalone: nothing is written anywhere.
	Standalone() bool
	// Known: the configuration is known.
	Known() bool
}

// dirt is what has to be looked at.
type dirt struct {
	all   bool
	uids  map[string]bool
	names map[string]bool // namespace/name of static pods
}

// podEntry is what the loop remembers of a pod.
type podEntry struct {
	status *v1.PodStatus
	// restored: status is from the journal, and not yet weighed against the API
	// server's.
	restored bool
	// blind: status was made without what the API server has, as it had not been
	// heard; another agent's, after a take-over, counts when it is.
	blind bool
	name  string // namespace/name, of static pods
}

// newPodLoop completes a loop, with what an earlier process left.
func newPodLoop(l *podLoop, restored map[string]journal.Pod) *podLoop {
	l.wake = make(chan struct{}, 1)
	l.dirty = dirt{uids: map[string]bool{}, names: map[string]bool{}}
	l.pods, l.held = map[string]*podEntry{}, map[string]bool{}
	for uid, p := range restored {
		status, err := p.Decode()
		if err != nil {
			l.log.Error("journaled status skipped", service.KeyUID, uid, service.KeyError, err.Error())
			continue
		}
		l.pods[uid] = &podEntry{status: status, restored: true}
	}
	return l
}

// watch makes every change of an input mark what depends on it. Call it before the
// mirrors run.
func (l *podLoop) watch() {
	byUID := func(keys []string) { l.mark(keys, nil, len(keys) == 0) }
	everything := func([]string) { l.mark(nil, nil, true) }
	l.in.pods.Watch(byUID)
	l.in.workers.Watch(byUID)
	l.in.records.Watch(byUID)
	l.in.verdicts.Watch(byUID)
	l.in.mirrors.Watch(func(keys []string) { l.mark(nil, keys, len(keys) == 0) })
	l.in.sources.Watch(everything)
	name := "" // part of every container id
	l.in.runtime.Watch(func([]string) {
		if r, ok := l.in.runtime.Get(runtimeKey); ok && r.Name != name {
			name = r.Name
			l.mark(nil, nil, true)
		}
	})
}

func (l *podLoop) mark(uids, names []string, all bool) {
	l.mu.Lock()
	l.dirty.all = l.dirty.all || all
	for _, uid := range uids {
		l.dirty.uids[uid] = true
	}
	for _, name := range names {
		l.dirty.names[name] = true
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// settled hears from the desk that a write was answered. The key is a UID, or the
// name of a static pod.
func (l *podLoop) settled(key string) {
	if strings.Contains(key, "/") {
		l.mark(nil, []string{key}, false)
		return
	}
	l.mark([]string{key}, nil, false)
}

func (l *podLoop) take() dirt {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.dirty
	l.dirty = dirt{uids: map[string]bool{}, names: map[string]bool{}}
	return taken
}

// Run works until ctx ends.
func (l *podLoop) Run(ctx context.Context) error {
	timer := time.NewTimer(resync)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-timer.C:
			if len(l.held) > 0 {
				l.mark(keysOf(l.held), nil, false)
			} else {
				l.mark(nil, nil, true)
			}
		}
		l.beat()
		if l.node.Known() {
			l.round(ctx, l.take())
		}
		wait := resync
		if len(l.held) > 0 {
			wait = retryHeld
		}
		timer.Reset(wait)
	}
}

// round looks at everything that changed.
func (l *podLoop) round(ctx context.Context, d dirt) {
	if d.all {
		l.addAll(&d)
	}
	for uid := range d.uids {
		if name := l.look(ctx, uid); name != "" {
			d.names[name] = true
		}
	}
	if len(d.names) > 0 {
		statics := l.statics()
		for name := range d.names {
			l.mirror(ctx, name, statics[name])
		}
	}
	if l.in.workers.Complete() && l.in.records.Synced() && l.in.pods.Synced() {
		l.reports.SetComplete(ctx, true)
	}
}

func (l *podLoop) addAll(d *dirt) {
	for uid := range l.in.pods.Items() {
		d.uids[uid] = true
	}
	for uid := range l.in.workers.Items() {
		d.uids[uid] = true
	}
	for uid := range l.pods {
		d.uids[uid] = true
	}
	for name := range l.in.mirrors.Items() {
		d.names[name] = true
	}
}

// look renders one pod. It answers the name of a static pod, whose mirror has to be
// looked at then.
func (l *podLoop) look(ctx context.Context, uid string) (name string) {
	heard := l.apiHeard() // before the pod is looked up, which is of then or later
	want, wanted := l.in.pods.Get(uid)
	worker, worked := l.in.workers.Get(uid)
	if !wanted && !worked {
		return l.forget(ctx, uid)
	}
	e := l.pods[uid]
	if e == nil {
		e = &podEntry{}
		l.pods[uid] = e
	}
	switch {
	case !wanted: // config may not have said yet what it is
		e.name = staticName(worker)
	case want.static():
		e.name = want.pod.Namespace + "/" + want.pod.Name
	default:
		e.name = ""
	}
	api := l.apiStatus(uid, want)
	l.started.reported(uid, want, api, l.now())
	switch {
	case e.blind && api != nil:
		e.status, e.blind = nil, false
	case e.status == nil && api == nil && want != nil && want.static() && !l.in.mirrors.Complete():
		e.blind = true
	}
	if e.restored && api != nil {
		if gather.Later(api, e.status) {
			e.status = nil
		}
		e.restored = false
	}
	status, hold := l.render(ctx, uid, want, e, api)
	if hold == gather.Go {
		delete(l.held, uid)
		l.keep(uid, want, e, status)
		l.started.rendered(uid, want, status, l.now())
	} else if l.hold(uid, hold) {
		l.log.Debug("status held", service.KeyUID, uid, "reason", string(hold))
	}
	if !l.node.Standalone() && (!wanted || !want.static()) {
		l.desk.SetPod(uid, l.podPlan(uid, want, e, heard))
	}
	l.publish(ctx, uid, want, e)
	return e.name
}

// hold notes that a pod is held; true the first time. A pod that podworker has not
// taken up wakes the loop by itself when it is.
func (l *podLoop) hold(uid string, why gather.Hold) bool {
	if why == gather.HoldUnknown || l.held[uid] {
		return false
	}
	l.held[uid] = true
	return true
}

// forget drops a pod that nobody has any more; nothing is dropped while somebody
// may have it.
func (l *podLoop) forget(ctx context.Context, uid string) (name string) {
	if !l.in.pods.Complete() || !l.in.workers.Complete() {
		return ""
	}
	if e := l.pods[uid]; e != nil {
		name = e.name
		delete(l.pods, uid)
		l.journal.DropPod(uid)
	}
	delete(l.held, uid)
	l.desk.Drop(uid)
	l.reports.Delete(ctx, uid)
	l.started.forget(uid)
	return name
}

// apiStatus is the newest status the API server is known to have.
func (l *podLoop) apiStatus(uid string, want *desired) *v1.PodStatus {
	if want == nil || l.node.Standalone() {
		return nil
	}
	var o *plan.Object
	if want.static() {
		name := want.pod.Namespace + "/" + want.pod.Name
		m, _ := l.in.mirrors.Get(name)
		o = l.desk.Newest(name, report.ObjectOf(m))
		if o != nil && o.Mirror != plan.Hash(want.pod) {
			o = nil // of another version of the pod
		}
	} else {
		o = l.desk.Newest(uid, report.ObjectOf(want.pod))
	}
	if o == nil {
		return nil
	}
	return o.Status
}

// render gathers and renders. Where the facts contradict each other it asks their
// owners once.
func (l *podLoop) render(ctx context.Context, uid string, want *desired, e *podEntry, api *v1.PodStatus) (*v1.PodStatus, gather.Hold) {
	in := l.gather(uid, want, e, api)
	input, hold := gather.Gather(in)
	switch hold {
	case gather.HoldWorker:
		if pull(ctx, l.in.workers) == nil {
			in.Worker, _ = l.in.workers.Get(uid)
			// One that has just started answers for the pods it has taken up again.
			in.WorkerAnswers = l.in.workers.Complete()
			input, hold = gather.Gather(in)
		}
	case gather.HoldStopped:
		if pull(ctx, l.in.records) == nil {
			in.Record, _ = l.in.records.Get(uid)
			in.RecordAnswers = true
			input, hold = gather.Gather(in)
		}
	}
	if hold != gather.Go {
		return nil, hold
	}
	status := podstatus.Render(input)
	return &status, gather.Go
}

func pull[T any](ctx context.Context, m *feed.Mirror[T]) error {
	ctx, cancel := context.WithTimeout(ctx, ask)
	defer cancel()
	return m.Pull(ctx)
}

func (l *podLoop) gather(uid string, want *desired, e *podEntry, api *v1.PodStatus) gather.Input {
	in := gather.Input{
		DesiredSynced: l.in.pods.Synced(), DesiredComplete: l.in.pods.Complete(), RecordsSynced: l.in.records.Synced(), RecordsComplete: l.in.records.Complete(),
		Last: e.status, API: api, Now: l.now(), Node: podstatus.Node{HostIPs: l.node.HostIPs()},
	}
	if want != nil {
		in.Desired = want.pod
	}
	// The record first: whatever podworker did to it is then in what it says.
	in.Record, _ = l.in.records.Get(uid)
	in.Worker, _ = l.in.workers.Get(uid)
	in.Probes, _ = l.in.verdicts.Get(uid)
	if r, ok := l.in.runtime.Get(runtimeKey); ok {
		in.Node.RuntimeName = r.Name
	}
	if k, ok := l.in.kubelet.Get(kubeletKey); ok {
		in.Node.StopSignals = k.config.Gate("ContainerStopSignals")
	}
	return in
}

func keysOf(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for key := range maps.Keys(set) {
		keys = append(keys, key)
	}
	return keys
}
