// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"slices"
	"strings"
	"time"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// gather reads every fact the pod depends on.
func (w *worker) gather() step.Input {
	l := w.l
	in := step.Input{
		Now: l.clock.Now(), UID: w.uid, Facts: w.facts, Accepted: w.spec.accepted, Boot: l.end.boot,
		Settings: settings(l.config.Config()), Flights: make(map[step.Key]step.Flight, len(w.flights)),
	}
	// What is complete is asked before the pod is looked up, which is of then or later.
	_, _, in.Config.PodsComplete = l.in.Pods.Lookup(string(w.uid))
	in.Config.SourcesComplete = in.Config.PodsComplete && l.in.sourcesComplete()
	unheard := l.in.unheard()
	allotted := w.fresh.allotment()
	desired, dropped := l.in.desired(w.uid, w.spec.source)
	if dropped { // its own source was read without it: what others list does not matter
		in.Config.PodsComplete, in.Config.SourcesComplete = true, true
	}
	if desired != nil {
		in.Desired = w.allocated(desired, allotted.item)
		w.accept(in.Desired)
		if pod.IsTerminalPhase(desired.Pod.Status.Phase) {
			w.fresh.finished()
		}
		in.Accepted = w.spec.accepted
	}
	in.Config.Unheard = unheard && w.spec.source == pod.SourceAPI
	in.Shutdown.Active, in.Shutdown.End, in.Shutdown.Grace = l.end.turn(priority(w.spec.accepted))
	in.ServicesKnown = l.in.servicesKnown()
	_, in.NodeKnown = l.in.Node.Get("node")
	w.fresh.follow()
	in.Observed = w.fresh.observed()
	w.spec.named(w.fresh.current())
	in.Volumes = w.fresh.volumes()
	in.Resources = w.fresh.resources(allotted, w.facts.State, desired)
	in.Verdicts, _ = l.in.Verdicts.Get(string(w.uid))
	in.Network = step.Network{Message: "runtime network not ready: status is not known yet"}
	if state, ok := l.in.Runtime.Get("runtime"); ok {
		in.Network = state.network
	}
	for key, f := range w.flights {
		in.Flights[key] = step.Flight{Action: f.action, Since: f.since, Cancelled: f.cancelled, Queued: f.queued}
	}
	l.mu.Lock()
	in.ObjectsChanged, in.ResourcesChanged, in.Excess = w.objectsChanged, l.resourcesChanged, l.excess
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

func eviction(e *resourcev1.Eviction) *step.Eviction {
	if e == nil {
		return nil
	}
	return &step.Eviction{
		Reason: e.GetReason(), Message: e.GetMessage(),
		Disruption: slices.Contains(pressureSignals, e.GetSignal()) || e.GetReason() == "Preempting" || e.GetReason() == "Terminated",
		Grace:      pod.Seconds(e.GetGraceSeconds()), At: e.GetTime().AsTime(),
	}
}

// settings are the values of a configuration that decisions depend on; nil: the
// configuration is not known.
func settings(c *kubeletconfig.Config) step.Settings {
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

// volumes is the state of the pod's volumes. What was said before the last command does
// not count.
func (f *freshness) volumes() step.Volumes {
	revision, complete, _, _ := f.in.Volumes.State()
	item, listed := f.in.Volumes.Get(string(f.uid))
	current := f.commands[step.Declare].Passed(revision, complete) && f.commands[step.Withdraw].Passed(revision, complete)
	v := step.Volumes{Gone: !listed && complete && current, Listed: listed}
	if listed {
		v.Ready, v.Withdrawing = item.GetReady() && current && !item.GetWithdrawing(), item.GetWithdrawing()
		v.Waiting = waitingVolumes(item)
		if current {
			v.LimitExceeded = item.GetLimitExceeded()
		}
	}
	return v
}

// allotment is what resource.pods says of the pod at one time: what is allocated and the
// number of it belong together.
type allotment struct {
	at               feed.Revision
	complete, listed bool
	item             *resourcev1.PodAllocation
}

func (f *freshness) allotment() (a allotment) {
	a.at, a.complete, _, _ = f.in.Allocations.State() // before the item, which is of then or later
	a.item, a.listed = f.in.Allocations.Get(string(f.uid))
	return a
}

// resources is what the pod holds. It was admitted once it is syncing.
func (f *freshness) resources(a allotment, state step.State, desired *step.Desired) step.Resources {
	item, listed, complete := a.item, a.listed, a.complete
	passed := func(kind step.Kind) bool { return f.commands[kind].Passed(a.at, complete) }
	r := step.Resources{
		Held: !passed(step.Admit) || listed && !item.GetReleasing() && item.GetUnready() == "",
		Read: passed(step.Admit) && listed,
		Lost: !listed && complete && state == step.Syncing && passed(step.Admit),
		Gone: !listed && complete && passed(step.Release),
	}
	if listed {
		r.Error, r.Unready = item.GetError(), item.GetUnready()
		r.OwnCPUs, r.SharedCPUs = ownCPUs(item), item.GetSharedCpus()
		r.Asked, r.Blocked = item.GetAsked(), item.GetBlocked()
		r.Allocation, r.Settled, r.Generation = item.GetAllocation(), item.GetSettled(), item.GetGeneration()
		// What it accepted is not in the replica at once.
		if desired != nil && r.Asked != "" && !passed(step.Resize) {
			r.Asked = desired.Asks
		}
		if !passed(step.Settle) {
			r.Settled, r.Assumed = r.Allocation, true
		}
		r.Eviction = eviction(item.GetEviction())
	}
	return r
}
