package step

import (
	"math"
	"slices"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
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
	if p.in.Resources.Lost {
		p.admit(true)
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
	active := p.sandbox()
	if p.f.State != Syncing {
		return
	}
	p.containers(active)
	if p.f.State != Syncing {
		return
	}
	p.resize(active)
	p.carryOut()
	p.sweep()
}

// declare tells volume about the pod, again when it has changed.
func (p *planner) declare() {
	key := Action{Kind: Declare}.Key()
	stale := p.in.Desired != nil && p.f.Declared != p.in.Desired.Fingerprint
	if (stale || p.in.Volumes.Gone) && !p.flying(key) && !p.held(key) {
		p.start(Action{Kind: Declare})
	}
	if f, ok := p.f.Failures[key]; ok && !p.in.Volumes.Ready {
		p.waitFor("volume", "declare", f.Message, f.Retry)
	}
}

// restartAll carries out a RestartAllContainers rule (KEP-5532): all containers
// are stopped without grace and removed, then start afresh in the same sandbox.
// True while it is busy.
func (p *planner) restartAll() bool {
	if p.f.RestartAll == nil {
		sources := p.restartSources()
		if len(sources) == 0 {
			return false
		}
		p.f.RestartAll = &RestartAll{At: p.in.Now, Sources: sources}
	}
	p.abort(Pull, Look, Start)
	for i := range p.in.Observed.Containers {
		if o := &p.in.Observed.Containers[i]; p.live(o) {
			p.kill(o, p.in.Now, "killing", false) // the kubelet's word
		}
	}
	p.carryOut()
	for _, c := range pod.Containers(p.pod) {
		p.hold(ContainerWait{Container: c.Name, Reason: restartingAll})
	}
	p.wait("runtime", "restart-all", "all containers are being restarted")
	if p.aliveContainers() || p.flyingKind(Start, Stop, Remove) {
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
	for name, c := range p.f.Containers {
		c.Last, c.ByProbe = nil, ""
		p.f.Containers[name] = c
	}
	p.f.RestartAll = nil
	p.waits, p.plan.Wait = map[string]ContainerWait{}, nil
	return false
}

// restartSources are the containers whose last exit asks for a restart of all.
func (p *planner) restartSources() (names []string) {
	for kind, c := range pod.Containers(p.pod) {
		if kind == pod.Ephemeral {
			continue
		}
		o := p.newest(c.Name, "")
		if o == nil || o.State != Exited || p.outdated(o) || p.replaced(o) {
			continue
		}
		if restart.Decide(p.pod, c, p.exit(o)) == restart.AllAgain {
			names = append(names, c.Name)
		}
	}
	return names
}

// nextToReset is the next container to remove: regular ones before init ones,
// those that asked for the restart last.
func (p *planner) nextToReset() *Instance {
	var best *Instance
	rank := 5
	for i := range p.in.Observed.Containers {
		o := &p.in.Observed.Containers[i]
		c, kind := pod.FindContainer(p.pod, o.Name)
		if c == nil || kind == pod.Ephemeral {
			continue
		}
		r := 0
		if kind != pod.Regular {
			r = 1
		}
		if slices.Contains(p.f.RestartAll.Sources, o.Name) {
			r += 2
		}
		if r < rank {
			best, rank = o, r
		}
	}
	return best
}

// exit is how an instance ended, as restart decisions want it.
func (p *planner) exit(o *Instance) restart.Exit {
	return restart.Exit{Code: o.ExitCode, ByProbe: p.f.Containers[o.Name].ByProbe == o.ID}
}

// newest is the newest instance of a container that was started; in one sandbox
// only when that is named.
func (p *planner) newest(name, sandbox string) *Instance {
	for i := range p.in.Observed.Containers {
		o := &p.in.Observed.Containers[i]
		if o.Name == name && o.State != Created && (sandbox == "" || o.Sandbox == sandbox) {
			return o
		}
	}
	return nil
}

// sweep removes dead instances beyond what is kept for logs and exit codes, and
// old sandboxes that hold none.
func (p *planner) sweep() {
	if !p.in.Observed.Known || p.in.Observed.Error != "" {
		return
	}
	keep := max(p.in.Settings.KeepDead, 1)
	if p.in.Settings.KeepDead < 0 {
		keep = math.MaxInt
	}
	dead := map[string]int{}
	held := map[string]bool{}
	for _, o := range p.in.Observed.Containers {
		held[o.Sandbox] = true
		if o.State != Exited {
			continue
		}
		if due := o.CreatedAt.Add(p.in.Settings.DeadAge); p.in.Now.Before(due) {
			p.wake(due)
			continue
		}
		if dead[o.Name]++; dead[o.Name] > keep || p.in.Surplus[o.ID] {
			p.remove(Action{Kind: Remove, ID: o.ID, Container: o.Name})
		}
	}
	for i, s := range p.in.Observed.Sandboxes {
		if i == 0 || s.Ready || held[s.ID] {
			continue
		}
		p.remove(Action{Kind: RemoveSandbox, ID: s.ID})
	}
}
