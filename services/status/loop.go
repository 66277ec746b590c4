// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
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

// resync is how often every pod is looked at without a reason; the loop is seen to live more
// often.
const resync, pulse = 5 * time.Minute, time.Minute

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

	*signal.Keys // pods to look at again: UIDs, names of static pods, everything
	// What follows belongs to Run's goroutine.
	pods    map[string]*podEntry // by UID
	held    map[string]*heldPod  // by UID
	asking  map[gather.Hold]bool // a question is under way
	answers chan answer
	// complete: when the last round began, all pods were known, so that reports has them.
	complete bool
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

// podEntry is what the loop remembers of a pod.
type podEntry struct {
	status *v1.PodStatus
	// restored: status is from the journal.
	restored bool
	// unheard: status is from the journal, or was made from that, and not yet weighed
	// against what the API server says.
	unheard bool
	// blind: status was made without what the API server has, as it had not been
	// heard; that, of another agent or of a lost journal, counts when it is.
	blind bool
	name  string // namespace/name, of static pods
}

// newPodLoop completes a loop, with what an earlier process left.
func newPodLoop(l *podLoop, restored map[string]journal.Pod) *podLoop {
	l.pods, l.held = map[string]*podEntry{}, map[string]*heldPod{}
	l.asking, l.answers = map[gather.Hold]bool{}, make(chan answer, 2)
	for uid, p := range restored {
		status, err := p.Decode()
		if err != nil {
			l.log.Error("journaled status skipped", service.KeyUID, uid, service.KeyError, err.Error())
			continue
		}
		l.pods[uid] = &podEntry{status: status, restored: true, unheard: true}
	}
	return l
}

// watch makes every change of an input mark what depends on it. Call it before the
// replicas run.
func (l *podLoop) watch() {
	byKey := func(keys []string) { l.Mark(orEverything(keys)) }
	l.in.pods.Watch(byKey)
	l.in.statuses.Watch(byKey)
	l.in.workers.Watch(byKey)
	l.in.records.Watch(byKey)
	l.in.verdicts.Watch(byKey)
	l.in.allocations.Watch(ofFacts(l.in.allocations, l.Mark))
	l.in.mirrors.Watch(byKey)
	l.in.sources.Watch(func([]string) { l.Mark([]string{everything}) })
	name := "" // part of every container id
	l.in.runtime.Watch(func([]string) {
		if r, ok := l.in.runtime.Get(runtimeKey); ok && r.Name != name {
			name = r.Name
			l.Mark([]string{everything})
		}
	})
}

// Run works until ctx ends.
func (l *podLoop) Run(ctx context.Context) error {
	var questions sync.WaitGroup
	defer questions.Wait()
	all, alive := time.NewTicker(resync), time.NewTicker(pulse)
	defer all.Stop()
	defer alive.Stop()
	var again <-chan time.Time
	var pace signal.Pace
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.Wake:
		case a := <-l.answers:
			l.answered(a)
		case <-again:
			again = nil
			l.retry()
		case <-alive.C:
		case <-all.C:
			l.Mark([]string{everything})
		}
		l.beat()
		if l.node.Known() {
			began, keys := time.Now(), l.Take()
			marked := slices.Collect(maps.Keys(keys)) // round adds to them
			l.round(ctx, keys)
			l.ask(ctx, &questions)
			pace.Rest(ctx, began, slices.Values(marked))
		}
		if len(l.held) > 0 && again == nil {
			again = time.After(retryHeld)
		}
	}
}

// round looks at everything that changed.
func (l *podLoop) round(ctx context.Context, keys map[string]bool) {
	// Asked before the pods are looked at; what has just come may not be marked yet.
	complete := l.in.workers.Listed() && l.in.records.Synced() && l.in.pods.Synced()
	if keys[everything] || complete && !l.complete {
		delete(keys, everything)
		l.addAll(keys)
	}
	l.complete = complete
	names := map[string]bool{}
	for key := range keys {
		if isName(key) {
			names[key] = true
		} else if name := l.look(ctx, key); name != "" {
			names[name] = true
		}
	}
	if len(names) > 0 {
		statics, known := l.in.statics()
		for name := range names {
			l.mirror(ctx, name, statics[name], known)
		}
	}
	if complete {
		l.reports.SetComplete(ctx, true)
	}
}

func (l *podLoop) addAll(keys map[string]bool) {
	for uid := range l.in.pods.Items() {
		keys[uid] = true
	}
	for uid := range l.in.workers.Items() {
		keys[uid] = true
	}
	for uid := range l.pods {
		keys[uid] = true
	}
	for name := range l.in.mirrors.Items() {
		keys[name] = true
	}
}

// look renders one pod. It answers the name of a static pod, whose mirror has to be
// looked at then.
func (l *podLoop) look(ctx context.Context, uid string) (name string) {
	listing := l.in.apiHeard() // before the pod is looked up, which is of then or later
	want, wanted, known := l.in.pods.Lookup(uid)
	worker, worked, workerKnown := l.in.workers.Lookup(uid)
	if !wanted && !worked {
		if !known || !workerKnown {
			return "" // one of them may have it
		}
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
	object, heard := l.listed(uid, want, listing)
	api := l.apiStatus(uid, want, object, heard)
	l.started.reported(uid, want, api, l.now())
	static := wanted && want.static()
	said := heard // reports whether the API server has said what it has of the pod
	if static {
		said = api != nil
	}
	switch {
	case e.blind && said:
		e.status, e.blind = nil, false
	case static && l.unmirrored(e.name):
		e.blind = false
	case e.status == nil && !said:
		e.blind = true
	}
	if e.unheard && api != nil {
		if e.status != nil && gather.Later(api, e.status) {
			e.status = nil
		}
		e.unheard = e.name == "" && !heard
	}
	if status := l.render(uid, want, known, e, api); status != nil {
		l.keep(uid, want, e, status)
		l.started.rendered(uid, want, status, l.now())
	}
	if !l.node.Standalone() && !static {
		l.desk.SetPod(uid, l.podPlan(uid, want, e, object, heard))
	}
	l.publish(ctx, uid, want, e)
	return e.name
}

// forget drops a pod that no input has any more.
func (l *podLoop) forget(ctx context.Context, uid string) (name string) {
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

// apiStatus is the newest status the API server is known to have. listed and heard are
// what listed answers.
func (l *podLoop) apiStatus(uid string, want *desired, listed *plan.Object, heard bool) *v1.PodStatus {
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
	} else if o = l.desk.Object(uid); o == nil || heard {
		o = l.desk.Newest(uid, listed)
	}
	if o == nil {
		return nil
	}
	return o.Status
}

// render gathers and renders; nil while the pod is held. known reports whether want is
// config's word.
func (l *podLoop) render(uid string, want *desired, known bool, e *podEntry, api *v1.PodStatus) *v1.PodStatus {
	in := l.gather(uid, want, known, e, api)
	input, why := gather.Gather(in)
	if why != gather.Go {
		if l.held[uid] == nil {
			l.log.Debug("status held", service.KeyUID, uid, "reason", string(why))
		}
		l.hold(uid, why, in)
		return nil
	}
	delete(l.held, uid)
	return new(podstatus.Render(input))
}

func (l *podLoop) gather(uid string, want *desired, known bool, e *podEntry, api *v1.PodStatus) gather.Input {
	in := gather.Input{
		DesiredSynced: l.in.pods.Synced(), DesiredComplete: known, RecordsSynced: l.in.records.Synced(),
		Last: e.status, API: api, Now: l.now(), Node: podstatus.Node{HostIPs: l.node.HostIPs()},
	}
	if want != nil {
		in.Desired = want.pod
	}
	// The record first: whatever podworker did to it is then in what it says.
	in.Record, _, in.RecordsComplete = l.in.records.Lookup(uid)
	var worked bool
	in.Worker, _, worked = l.in.workers.Lookup(uid)
	in.Probes, _ = l.in.verdicts.Get(uid)
	if r, ok := l.in.runtime.Get(runtimeKey); ok {
		in.Node.RuntimeName = r.Name
	}
	a, ok, given := l.in.allocations.Lookup(uid)
	if in.Health.Known = given; ok {
		in.Health.Containers, in.OOMKilled = a.health, a.oomKilled
	}
	if k, ok := l.in.kubelet.Get(kubeletKey); ok {
		in.Node.StopSignals = k.config.Gate("ContainerStopSignals")
		if !k.config.Gate("ResourceHealthStatus") {
			in.Health.Containers = nil
		} else if !k.config.Gate("ResourceHealthStatusMessage") {
			in.Health.Containers = withoutMessages(in.Health.Containers)
		}
	}
	l.tell(uid, &in, worked)
	return in
}
