package podworker

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
	"github.com/sextant-node/sextant/pkg/service"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// readTimeout bounds one request to pleg.
const readTimeout = 10 * time.Second

// gather reads every fact the pod depends on.
func (w *worker) gather() step.Input {
	l := w.l
	in := step.Input{
		Now: l.clock.Now(), UID: w.uid, Facts: w.facts, Accepted: w.accepted, Boot: l.end.boot,
		Config:   step.Config{PodsComplete: l.in.Pods.Complete(), SourcesComplete: l.sourcesComplete()},
		Settings: l.settings(), Flights: make(map[step.Key]step.Flight, len(w.flights)),
	}
	unheard := l.in.unheard() // before the pod is looked up, which is of then or later
	desired, dropped := l.in.desired(w.uid, w.source)
	in.Config.PodsComplete = in.Config.PodsComplete || dropped
	if desired != nil {
		allocated := *desired
		allocated.Pod = w.allocated(desired.Pod)
		in.Desired = &allocated
		w.accept(&allocated)
		if !w.finished && pod.IsTerminalPhase(desired.Pod.Status.Phase) {
			w.finished, w.acts = true, w.acts+1
		}
		in.Accepted = w.accepted
	}
	in.Config.Unheard = unheard && w.source == pod.SourceAPI
	in.Shutdown = w.downfall()
	in.ServicesKnown = l.in.servicesKnown()
	_, in.NodeKnown = l.in.Node.Get("node")
	in.Observed = w.observed()
	in.Volumes = w.volumes()
	in.Resources = w.resources(desired)
	in.Verdicts, _ = l.in.Verdicts.Get(string(w.uid))
	in.Network = step.Network{Message: "runtime network not ready: status is not known yet"}
	if state, ok := l.in.Runtime.Get("runtime"); ok {
		in.Network = state.network
	}
	for key, f := range w.flights {
		in.Flights[key] = step.Flight{Action: f.action, Since: f.since, Cancelled: f.cancelled, Queued: f.queued}
	}
	l.mu.Lock()
	in.ObjectsChanged, in.ResourcesChanged, in.Surplus = l.objectsChanged, l.resourcesChanged, l.surplus
	l.mu.Unlock()
	if in.Desired != nil {
		in.Handler = l.lookups.handler(in.Desired.Pod)
		w.pending(&in)
	}
	return in
}

// pending adds what only a pod that was never decided about depends on.
func (w *worker) pending(in *step.Input) {
	p := in.Desired.Pod
	undecided := w.facts.State == "" || w.facts.State == step.Pending
	if pod.IsStatic(p) && in.Observed.Known && (undecided || w.facts.State == step.Rejected) {
		if in.Holder = w.l.claim(pod.FullName(p), w.uid); in.Holder == "" {
			w.claimed = pod.FullName(p)
		}
	}
	if !undecided {
		in.Logged = w.logged
		return
	}
	if w.logged == nil {
		w.logged = map[string]int{}
		for _, c := range pod.Containers(p) {
			if n := w.l.sandboxes.RestartCountFromLogs(p, c.Name); n > 0 {
				w.logged[c.Name] = n
			}
		}
	}
	in.Logged = w.logged
}

// accept takes over the specification that config lists.
func (w *worker) accept(d *step.Desired) {
	w.source = d.Source
	id := d.Fingerprint
	if d.Pod == w.dressed.pod && d.Pod != w.dressed.from {
		h := fnv.New64a()
		_, _ = h.Write([]byte(w.dressed.sizes))
		id ^= h.Sum64()
	}
	if at := d.Pod.DeletionTimestamp; at != nil {
		id ^= uint64(at.Unix())
		if g := d.Pod.DeletionGracePeriodSeconds; g != nil {
			id ^= uint64(*g) << 40
		}
	}
	if w.accepted != nil && w.acceptID == id {
		return
	}
	kept := *d.Pod
	kept.Status = v1.PodStatus{}
	kept.ManagedFields, kept.ResourceVersion = nil, ""
	packed, err := kept.Marshal()
	if err != nil {
		w.l.log.Error("pod does not marshal", service.KeyUID, string(w.uid), service.KeyError, err.Error())
		return
	}
	w.accepted, w.acceptID, w.packed = &kept, id, packed
	w.identity = &v1.Pod{}
	w.identity.Name, w.identity.Namespace, w.identity.UID = kept.Name, kept.Namespace, kept.UID
}

// observed is the newest record there is: the mirror's, or that of the last
// refresh while the mirror has not come so far.
func (w *worker) observed() step.Observed {
	record, known := w.current()
	o := step.Observed{
		Known:    known,
		Verified: w.creates == w.createsSeen, Current: w.acts == w.actsSeen,
		RefreshError: w.refreshError,
	}
	if record == nil {
		return o
	}
	if w.identity == nil || w.identity.Name == "" {
		w.identity = record.Pod()
	}
	o.Error, o.Sandboxes, o.Containers = record.Error, record.Sandboxes, record.Containers
	return o
}

func (w *worker) current() (record *observe.Record, known bool) {
	revision, complete, _, _ := w.l.in.Records.State()
	if !w.refreshed.reached(revision, complete) {
		return w.record, true
	}
	if record, ok := w.l.in.Records.Get(string(w.uid)); ok {
		return record, true
	}
	return nil, complete || w.refreshed != (mark{})
}

// read asks pleg for a record of now.
func (l *loop) read(ctx context.Context, uid types.UID) (*observe.Record, feed.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	resp, err := l.pleg.Refresh(ctx, &plegv1.RefreshRequest{Uid: string(uid)})
	if err != nil {
		return nil, feed.Revision{}, err
	}
	revision := feed.RevisionFrom(resp.GetRevision())
	l.in.Records.LookFor(revision)
	if resp.GetRecord() == nil {
		return nil, revision, nil
	}
	record, err := observe.Decode(resp.GetRecord())
	return record, revision, err
}

// volumes is the state of the pod's volumes. What was said before the last
// command does not count.
func (w *worker) volumes() step.Volumes {
	m := w.l.in.Volumes
	revision, complete, _, _ := m.State()
	item, listed := m.Get(string(w.uid))
	current := w.asked[step.Declare].reached(revision, complete) && w.asked[step.Withdraw].reached(revision, complete)
	v := step.Volumes{Gone: !listed && complete && current, Listed: listed}
	if !listed {
		return v
	}
	v.Ready, v.Withdrawing = item.GetReady() && current && !item.GetWithdrawing(), item.GetWithdrawing()
	v.Waiting = waitingVolumes(item)
	return v
}

// waitingVolumes says in words what is not mounted, or not unmounted, why, since
// when, and when it is tried again (UTC).
func waitingVolumes(item *volumev1.PodVolumes) string {
	var parts []string
	for _, v := range item.GetVolumes() {
		if v.GetState() == volumev1.VolumeState_VOLUME_STATE_MOUNTED && v.GetError() == "" && !item.GetWithdrawing() {
			continue
		}
		text := "volume " + v.GetName()
		for _, more := range []string{v.GetStep(), v.GetError()} {
			if more != "" {
				text += ": " + more
			}
		}
		if v.GetError() != "" && v.GetRetryAt() != nil {
			text += "; tried since " + v.GetSince().AsTime().Format(time.TimeOnly) + ", again at " + v.GetRetryAt().AsTime().Format(time.TimeOnly)
		}
		parts = append(parts, text)
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// pressureSignals are those for which a pod goes for the node's sake.
var pressureSignals = []string{
	"memory.available", "allocatableMemory.available", "nodefs.available", "nodefs.inodesFree",
	"imagefs.available", "imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "pid.available",
}

func (w *worker) resources(desired *step.Desired) step.Resources {
	m := w.l.in.Allocations
	revision, complete, _, _ := m.State()
	item, listed := m.Get(string(w.uid))
	told := w.asked[step.Admit].want != (feed.Revision{}) && !w.asked[step.Admit].reached(revision, complete)
	r := step.Resources{
		Held: told || listed && !item.GetReleasing(),
		Lost: !listed && complete && w.facts.State == step.Syncing && w.asked[step.Admit].reached(revision, complete),
		Gone: !listed && complete && w.asked[step.Release].reached(revision, complete),
	}
	if listed {
		r.Error = item.GetError()
		r.Asked, r.Blocked = item.GetAsked(), item.GetBlocked()
		r.Allocation, r.Settled, r.Generation = item.GetAllocation(), item.GetSettled(), item.GetGeneration()
		// What it accepted is not in the mirror at once.
		if desired != nil && r.Asked != "" && !w.asked[step.Resize].reached(revision, complete) {
			r.Asked = desired.Asks
		}
		if !w.asked[step.Settle].reached(revision, complete) {
			r.Settled = r.Allocation
		}
		r.Eviction = eviction(item.GetEviction())
	}
	return r
}

func eviction(e *resourcev1.Eviction) *step.Eviction {
	if e == nil {
		return nil
	}
	return &step.Eviction{
		Reason: e.GetReason(), Message: e.GetMessage(),
		Disruption: slices.Contains(pressureSignals, e.GetSignal()) || e.GetReason() == "Preempting" || e.GetReason() == "Terminated",
		Grace:      time.Duration(e.GetGraceSeconds()) * time.Second, At: e.GetTime().AsTime(),
	}
}

// settings are the values of the configuration decisions depend on.
func (l *loop) settings() step.Settings {
	c := l.Config()
	s := step.Settings{Crash: restart.CrashPolicy(0), KeepDead: 1}
	if c == nil {
		return s
	}
	var most time.Duration
	if d := c.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod; d != nil && c.Gate("KubeletCrashLoopBackOffMax") {
		most = d.Duration
	}
	s.Crash = restart.CrashPolicy(most)
	if c.Gate("ReduceDefaultCrashLoopBackOffDecay") {
		s.Crash = restart.FastCrashPolicy(most)
	}
	s.KeepDead, s.DeadAge = int(c.Node.MaxDeadContainersPerContainer), c.Node.MinimumContainerTTL
	return s
}
