package step

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// sandbox sees to the pod's sandbox and returns it when it is fit for use.
func (p *planner) sandbox() *Sandbox {
	if p.flyingKind(RunSandbox) {
		if p.queued(Action{Kind: RunSandbox}.Key()) {
			p.wait("podworker", "sandbox", "sandbox waits for its turn: the runtime is starting others")
			return nil
		}
		p.wait("runtime", "sandbox", "sandbox is being created")
		return nil
	}
	all := p.in.Observed.Sandboxes
	if len(all) > 0 && p.usable() {
		return &all[0]
	}
	if p.over(all) {
		return nil
	}
	attempt := 0
	if len(all) > 0 {
		attempt = int(all[0].Attempt) + 1
		p.tell("sandbox", all[0].ID, Event{Reason: "SandboxChanged", Message: "Pod sandbox changed, it will be killed and re-created."})
		if !p.clear() {
			return nil
		}
	}
	p.create(attempt)
	return nil
}

// usable: the newest sandbox is the only ready one, in the network the pod asks
// for, and has an address.
func (p *planner) usable() bool {
	all := p.in.Observed.Sandboxes
	newest := all[0]
	if !newest.Ready || p.f.Stopped[newest.ID] {
		return false
	}
	for _, s := range all[1:] {
		if s.Ready && !p.f.Stopped[s.ID] {
			return false
		}
	}
	if newest.HostNetwork != p.pod.Spec.HostNetwork {
		return false
	}
	return newest.HostNetwork || len(newest.IPs) > 0
}

// over ends a pod that has lost its sandbox and has nothing left to run.
func (p *planner) over(all []Sandbox) bool {
	if p.finished() {
		p.end(Finished, nil)
		return true
	}
	ran := false
	for i := range p.in.Observed.Containers {
		o := &p.in.Observed.Containers[i]
		ran = ran || o.State != Created && !p.replaced(o)
	}
	if len(all) > 0 && ran && p.pod.Spec.RestartPolicy == v1.RestartPolicyNever && !p.ruled() {
		p.end(Finished, nil)
		return true
	}
	return false
}

// replaced tells whether an instance is one that another takes the place of, or
// older than that.
func (p *planner) replaced(o *Instance) bool {
	newest := p.newest(o.Name, "")
	return newest != nil && p.f.Containers[o.Name].Replaced == newest.ID
}

// ruled tells whether a container says for itself when it restarts.
func (p *planner) ruled() bool {
	for kind, c := range pod.Containers(p.pod) {
		if kind == pod.Regular && c.RestartPolicy != nil {
			return true
		}
	}
	return false
}

// clear stops everything in the old sandboxes; true when nothing is left.
func (p *planner) clear() bool {
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

// create makes a sandbox when nothing stands in the way.
func (p *planner) create(attempt int) {
	a := Action{Kind: RunSandbox, Attempt: attempt}
	switch {
	case p.in.Config.Unheard:
		p.wait("config", "sources", "the API server has not said yet which pods there are")
	case !p.in.Resources.Held:
		p.wait("resource", "allocation", "the pod's cgroup is not there")
	case !p.networked():
	case p.in.Handler.Waiting != "":
		p.remind("handler", p.in.Handler.Waiting, Event{Warning: true, Reason: "FailedCreatePodSandBox",
			Message: "Failed to create pod sandbox: " + p.in.Handler.Waiting})
		p.wait("config", "runtime-class", p.in.Handler.Waiting)
	case p.held(a.Key()):
		f := p.f.Failures[a.Key()]
		p.waitFor("runtime", "sandbox", f.Message, f.Retry)
	case !p.in.Observed.Verified:
		p.refresh()
	default:
		p.start(a)
		p.wait("runtime", "sandbox", "sandbox is being created")
	}
}

// networked tells whether the pod has the network it needs to start anything.
func (p *planner) networked() bool {
	if p.pod.Spec.HostNetwork || p.in.Network.Ready {
		delete(p.f.Told, "network")
		return true
	}
	p.remind("network", p.in.Network.Message, Event{Warning: true, Reason: "NetworkNotReady",
		Message: fmt.Sprintf("network is not ready: %s", p.in.Network.Message)})
	p.wait("runtime", "network", "network is not ready: "+p.in.Network.Message)
	return false
}
