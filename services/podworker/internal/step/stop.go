// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// stops ends containers and sandboxes.
type stops struct {
	learning
	// clearing: all containers make room for another sandbox.
	clearing bool
}

// quell stops what runs of a pod that never was to run; false when nothing does.
func (p *stops) quell() bool {
	if !p.in.Observed.Known || !p.alive() && !p.flyingKind(Stop, PreStop) {
		return false
	}
	for i := range p.in.Observed.Containers {
		if o := &p.in.Observed.Containers[i]; p.live(o) {
			p.kill(o, p.in.Now.Add(minPodGrace), "", true)
		}
	}
	p.carryOut()
	p.wait("runtime", "stop", "what was made of it before is being stopped")
	if !p.aliveContainers() {
		p.stopSandboxes()
	}
	return true
}

// stopSandboxes stops every sandbox once; true when all are.
func (p *stops) stopSandboxes() bool {
	all := true
	for _, s := range p.in.Observed.Sandboxes {
		if p.f.Stopped[s.ID] {
			continue
		}
		all = false
		a := Action{Kind: StopSandbox, ID: s.ID}
		if f, failed := p.f.Failures[a.Key()]; p.backedOff(a.Key()) && failed {
			p.unstopped(a, "KillPodSandbox", string(p.in.UID), f)
			p.waitFor("runtime", "stop-sandbox", f.Message, f.Retry)
			continue
		}
		if !p.flying(a.Key()) {
			p.start(a)
		}
		p.wait("runtime", "stop-sandbox", "")
	}
	return all
}

// kill notes that a container must stop by then. Of two, the earlier holds.
func (p *stops) kill(o *Instance, deadline time.Time, message string, hook bool) {
	k, ok := p.f.Kills[o.ID]
	if !ok {
		k = Kill{Container: o.Name, Message: message, Deadline: deadline, Grace: deadline.Sub(p.in.Now), HookDone: !hook || !p.hasHook(o)}
	}
	if deadline.Before(k.Deadline) {
		k.Deadline, k.Grace = deadline, deadline.Sub(p.in.Now)
	}
	p.f.Kills[o.ID] = k
}

// carryOut brings every kill one act further: the hook, then the stop, each
// within what is left of the grace; sidecars stop in their turn.
func (p *stops) carryOut() {
	for _, id := range slices.Sorted(maps.Keys(p.f.Kills)) {
		o := p.instanceByID(id)
		if o == nil || !p.live(o) {
			p.cancel(Action{Kind: PreStop, ID: id}.Key()) // what it prepares for has come
			continue
		}
		if !p.f.Kills[id].HookDone && p.unheard(PreStop, id) || p.unheard(Stop, id) {
			p.renew()
		}
		k := p.f.Kills[id]
		left := k.Deadline.Sub(p.in.Now)
		if k.HookDone || p.hook(id, &k, left) {
			p.stop(o, &k, left)
		}
		p.f.Kills[id] = k
	}
}

// unheard reports whether an action is due again that found no runtime.
func (p *stops) unheard(kind Kind, id string) bool {
	key := Action{Kind: kind, ID: id}.Key()
	f, failed := p.f.Failures[key]
	return failed && f.Away && !f.Reported && !p.in.Now.Before(f.Retry) && !p.flying(key)
}

// renew gives everything that is to stop its whole grace: no container was told to end while the
// runtime was away. A kubelet gives the whole grace with each try.
func (p *stops) renew() {
	for id, k := range p.f.Kills {
		k.Deadline = later(k.Deadline, p.in.Now.Add(k.Grace))
		p.f.Kills[id] = k
	}
	if t := p.f.Termination; t != nil {
		t.Deadline = later(t.Deadline, p.in.Now.Add(t.Grace))
	}
}

// hook runs the preStop hook; true when the stop need not wait for it any longer.
// A hook that outlasts the grace goes on while the container has its signal: the
// container's end is the hook's.
func (p *stops) hook(id string, k *Kill, left time.Duration) bool {
	a := Action{Kind: PreStop, ID: id, Container: k.Container, Grace: left, Message: k.Message}
	_, under := p.in.Flights[a.Key()]
	switch {
	case !under && p.backedOff(a.Key()): // the hook has not run; the next try has the whole grace
		p.waitFor("runtime", "stop", p.f.Failures[a.Key()].Message, p.f.Failures[a.Key()].Retry)
	case left <= 0:
		k.HookDone = true
		return true
	case under:
		p.wake(k.Deadline)
	default:
		a.Tell, k.Told = !k.Told, true
		p.start(a)
		p.wake(k.Deadline)
	}
	return false
}

func (p *stops) stop(o *Instance, k *Kill, left time.Duration) {
	a := Action{Kind: Stop, ID: o.ID, Container: k.Container, Grace: max(left, minStopGrace), Message: k.Message}
	if f, ok := p.in.Flights[a.Key()]; ok {
		// Under way: only a shorter grace is worth another call.
		ends, now := f.Since.Add(f.Action.Grace), p.in.Now.Add(a.Grace)
		if !f.Cancelled && now.Add(graceStep).Before(ends) {
			p.start(a)
		}
		return
	}
	if left > 0 && !p.turn(o) {
		p.wake(k.Deadline)
		return
	}
	if p.backedOff(a.Key()) {
		f := p.f.Failures[a.Key()]
		p.unstopped(a, "KillContainer", o.Name, f)
		p.waitFor("runtime", "stop", f.Message, f.Retry)
		return
	}
	a.Tell, k.Told = !k.Told, true
	p.start(a)
}

// unstopped tells why a pod that ends does not: what is left of it could not be stopped, for
// want of its network plugin for example. The event is worded as a kubelet's.
func (p *stops) unstopped(a Action, what, of string, f Failure) {
	if p.f.State != Terminating || f.Away {
		return
	}
	message := fmt.Sprintf("error killing pod: failed to %q for %q with %sError: %q", what, of, what, cmp.Or(f.Cause, f.Message))
	p.remind(string(a.Key()), f.Message, Event{Warning: true, Reason: "FailedKillPod", Message: message})
}

// turn reports whether a container may be stopped now: where all of a pod are,
// sidecars stop after all regular containers and after the sidecars listed
// behind them (KEP-753).
func (p *stops) turn(o *Instance) bool {
	if p.pod == nil || p.f.State != Terminating && !p.clearing {
		return true
	}
	at := sidecarIndex(p.pod, o.Name)
	if at < 0 {
		return true
	}
	for i := range p.in.Observed.Containers {
		other := &p.in.Observed.Containers[i]
		if other.ID == o.ID || !p.live(other) {
			continue
		}
		if n := sidecarIndex(p.pod, other.Name); n < 0 || n > at {
			return false
		}
	}
	return true
}

// sidecarIndex is the place of a sidecar among the init containers, -1 for any
// other container.
func sidecarIndex(p *v1.Pod, name string) int {
	return slices.IndexFunc(p.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && pod.IsSidecar(&c) })
}

// stopStale stops what runs in other sandboxes than the one in use, and of a container what
// is older than its newest instance: the runtime may start one yet that it did not remove.
func (p *stops) stopStale(active *Sandbox) {
	for i := range p.in.Observed.Containers {
		o := &p.in.Observed.Containers[i]
		newest := p.newest(o.Name, active.ID)
		stale := o.Sandbox != active.ID || newest != nil && o.RestartCount < newest.RestartCount
		if stale && p.live(o) {
			p.kill(o, p.in.Now.Add(containerGrace(p.pod)), "", true)
		}
	}
}

// stopIf has the newest instance of a container stopped if its assessment says so.
func (p *stops) stopIf(name string, a assessment) {
	if a.stop == nil {
		return
	}
	id := a.stop.instance.ID
	facts := p.f.Containers[name]
	if a.stop.replaced {
		facts.Replaced = id
	}
	p.f.Containers[name] = facts
	p.kill(a.stop.instance, p.in.Now.Add(a.stop.grace), a.stop.message, true)
}

// clear stops everything in the old sandboxes; true when nothing is left.
func (p *stops) clear() bool {
	p.abort(Start)
	p.clearing = true
	deadline := p.in.Now.Add(containerGrace(p.pod))
	for i := range p.in.Observed.Containers {
		if o := &p.in.Observed.Containers[i]; p.live(o) {
			p.kill(o, deadline, "", true)
		}
	}
	if p.aliveContainers() || p.flyingKind(Start, Stop, PreStop) {
		p.wait("runtime", "stop", "containers of the former sandbox are being stopped")
		return false
	}
	if !p.in.Observed.Verified {
		p.refresh() // see terminating
		return false
	}
	return p.stopSandboxes()
}

// shrink takes over a shorter grace; a longer one is too late.
func (p *stops) shrink() {
	t := p.f.Termination
	// A pod that ended otherwise may be deleted in the meantime.
	if p.in.Desired != nil && p.in.Desired.Pod.DeletionTimestamp != nil && (t.Cause == Removed || t.Cause == Deadline || t.Cause == Finished) {
		t.Cause = Deleted
	}
	grace := p.grace()
	if grace >= t.Grace {
		return
	}
	t.Grace = grace
	if at := p.in.Now.Add(grace); at.Before(t.Deadline) {
		t.Deadline = at
	}
}

// exceeded tells once that a pod the node ended takes too long to die.
func (p *stops) exceeded() {
	t := p.f.Termination
	if t.Exceeded || (t.Cause != Evicted && t.Cause != NodeDown) {
		return
	}
	at := t.Started.Add(pod.KillPatience(t.Grace))
	p.wake(at)
	if !p.in.Now.Before(at) {
		t.Exceeded = true
		p.event(Event{Warning: true, Reason: "ExceededGracePeriod",
			Message: "Container runtime did not kill the pod within specified grace period."})
	}
}

// awaited reports whether resource waits for a pod that it has evicted.
func (p *stops) awaited() bool {
	t := p.f.Termination
	at := t.Started.Add(pod.Departure(t.Grace))
	p.wake(at)
	return p.in.Now.Before(at)
}

// withdrawn has the volumes of the pod removed, and reports whether they are gone.
func (p *stops) withdrawn() bool {
	switch {
	case !p.f.WithdrawAccepted:
		p.ask(Withdraw, "volume", "unmount")
	case !p.in.Volumes.Gone:
		p.wait("volume", "unmount", p.in.Volumes.Waiting)
	default:
		return true
	}
	return false
}
