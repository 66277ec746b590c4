// SPDX-License-Identifier: Apache-2.0

package step

import (
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
)

// syncing: the runtime is brought to the specification.
func (p *planner) syncing() {
	if p.mustEnd() {
		return
	}
	if p.pod == nil {
		p.wait("config", "sources", "the specification of this pod is not known")
		return
	}
	if p.in.Resources.Lost && p.in.Observed.Known {
		// Not known counts as running: a pod that runs is never judged again.
		running := p.alive() || p.in.Observed.Error != ""
		if p.unfit(running) {
			return
		}
		p.admit(running)
	}
	p.declare()
	if !p.in.Observed.Known {
		p.wait("pleg", "observe", "what the runtime has of this pod is not known yet")
		return
	}
	if e := p.in.Observed.Error; e != "" {
		p.remind("sync", e, Event{Warning: true, Reason: "FailedSync", Message: "error determining status: " + e})
		p.wait("runtime", "observe", e)
		p.carryOut()
		return
	}
	if p.restartAll() {
		return
	}
	active := p.fit()
	all := p.judge(active)
	if p.finished(all) {
		p.end(Finished, nil)
		return
	}
	for kind, c := range pod.Containers(p.pod) {
		if kind == pod.Regular || kind == pod.Ephemeral {
			p.stopIf(c.Name, all[c.Name])
		}
	}
	if active == nil {
		p.sandbox()
		if p.f.State != Syncing {
			return
		}
	}
	p.sync(active, all)
	if p.f.State != Syncing {
		return
	}
	p.resize(active)
	p.pin()
	p.carryOut()
	p.sweep()
}

// unfit ends a pod that resource had lost and refuses, of which nothing runs: after a boot a
// kubelet admits every pod anew, and fails those that do not fit any more. A static pod,
// which nobody would make again, waits until it fits.
func (p *planner) unfit(running bool) bool {
	r := p.f.Unfit
	switch {
	case r == nil:
		return false
	case running, pod.IsStatic(p.pod):
		p.f.Unfit = nil
		return false
	case !p.in.Observed.Verified:
		p.refresh()
		return false
	}
	p.f.Unfit = nil
	p.event(Event{Warning: true, Reason: r.Reason, Message: r.Message})
	p.end(Evicted, &Outcome{Kind: "Rejected", Reason: r.Reason, Message: r.Message, At: r.At})
	return true
}

// declare tells volume about the pod, again when it has changed.
func (p *planner) declare() {
	key := Action{Kind: Declare}.Key()
	if (p.undeclared() || p.in.Volumes.Gone) && !p.flying(key) && !p.backedOff(key) {
		p.start(Action{Kind: Declare})
	}
	if f, ok := p.f.Failures[key]; ok && !p.in.Volumes.Ready {
		p.waitFor("volume", "declare", f.Message, f.Retry)
	}
}

// restartAll carries out a RestartAllContainers rule (KEP-5532): all containers but the
// ephemeral ones are stopped without grace and removed, then start afresh in the same
// sandbox. True while it is busy.
func (p *planner) restartAll() bool {
	if p.f.RestartAll == nil {
		sources := p.restartSources()
		if len(sources) == 0 {
			return false
		}
		if due := p.f.RestartedAll.Add(restartAllPause); p.in.Now.Before(due) {
			p.wake(due)
			p.waitFor("runtime", "restart-all", "all containers were restarted just now, and are to be once more", due)
			return true
		}
		p.f.RestartAll, p.f.RestartedAll = &RestartAll{At: p.in.Now, Sources: sources}, p.in.Now
	}
	p.abort(Pull, Look, Start)
	alive := false
	for i := range p.in.Observed.Containers {
		o := &p.in.Observed.Containers[i]
		if _, kind := pod.FindContainer(p.pod, o.Name); p.live(o) && kind != pod.Ephemeral {
			p.kill(o, p.in.Now, "killing", false) // the kubelet's word
			alive = true
		}
	}
	p.carryOut()
	for kind, c := range pod.Containers(p.pod) {
		if kind != pod.Ephemeral {
			p.show(ContainerWait{Container: c.Name, Reason: reason.RestartingAllContainers})
		}
	}
	p.wait("runtime", "restart-all", "all containers are being restarted")
	if alive || p.flyingKind(Start, Stop, Remove) {
		return true
	}
	if !p.in.Observed.Verified {
		p.refresh()
		return true
	}
	if next := p.nextToReset(); next != nil {
		if next.State == Exited || next.State == Created {
			p.remove(Action{Kind: Remove, ID: next.ID, Container: next.Name, KeepLogs: true})
		}
		return true
	}
	for kind, c := range pod.Containers(p.pod) {
		if kind == pod.Ephemeral {
			continue
		}
		facts := p.f.Containers[c.Name]
		facts.Last, facts.Reset = nil, p.attempt(c.Name)
		p.f.Containers[c.Name] = facts
	}
	p.f.RestartAll = nil
	p.waits, p.plan.Wait = map[string]ContainerWait{}, nil
	return false
}
