package step

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// standing is where a container of the spec stands.
type standing int

const (
	// absent: it never ran (for init containers: not in this sandbox).
	absent standing = iota
	// up: it runs and is to go on running.
	up
	// stopping: it runs and is to stop, or is stopped but not seen dead yet.
	stopping
	// due: it ended and runs again.
	due
	// done: it ended and stays so.
	done
)

// containers sees to every container. active is nil while there is no sandbox:
// images are fetched meanwhile.
func (p *planner) containers(active *Sandbox) {
	if p.finished() {
		p.end(Finished, nil)
		return
	}
	if active != nil {
		p.strays(active)
	}
	p.ephemeral(active)
	ready, failed := p.initialize(active)
	if failed {
		p.end(Finished, nil)
		return
	}
	if !ready {
		p.wait("pod", "init", "init containers have not finished")
		return
	}
	line := &queue{}
	for i := range p.pod.Spec.Containers {
		c := &p.pod.Spec.Containers[i]
		switch p.standing(c, pod.Regular, "") {
		case absent, due:
			p.launch(c, pod.Regular, active, line)
		case up:
			line.busy = line.busy || p.hooked(c)
		}
	}
}

// hooked tells whether a container runs whose start has not ended: its postStart
// hook runs, for as long as it likes.
func (p *planner) hooked(c *v1.Container) bool {
	if !p.flying(Action{Kind: Start, Container: c.Name}.Key()) {
		return false
	}
	message := "container " + c.Name + " is being started"
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		message = "the postStart hook of container " + c.Name + " has not ended"
	}
	p.wait("runtime", "start", message)
	return true
}

// strays stops what runs in other sandboxes than the one in use.
func (p *planner) strays(active *Sandbox) {
	for i := range p.in.Observed.Containers {
		o := &p.in.Observed.Containers[i]
		if o.Sandbox != active.ID && p.live(o) {
			p.kill(o, p.in.Now.Add(containerGrace(p.pod)), "", true)
		}
	}
}

// finished: every regular container ran and none runs again.
func (p *planner) finished() bool {
	for i := range p.pod.Spec.Containers {
		c := &p.pod.Spec.Containers[i]
		if p.flying(Action{Kind: Start, Container: c.Name}.Key()) {
			return false
		}
		if p.standing(c, pod.Regular, "") != done {
			return false
		}
	}
	return len(p.pod.Spec.Containers) > 0
}

// standing judges the newest instance of a container, in one sandbox only when
// that is named, and notes it for killing when it has to stop.
func (p *planner) standing(c *v1.Container, kind pod.ContainerKind, sandbox string) standing {
	o := p.newest(c.Name, sandbox)
	if o == nil || p.outdated(o) {
		return p.remembered(c, sandbox)
	}
	switch o.State {
	case Exited:
		if p.f.Containers[c.Name].Replaced != o.ID && restart.Decide(p.pod, c, p.exit(o)) == restart.Stay {
			return done
		}
		return due
	case Unknown:
		if !p.f.Dead[o.ID] {
			p.kill(o, p.in.Now.Add(containerGrace(p.pod)), `Container is in "unknown" state, try killing it before restart`, true)
		}
		return stopping
	}
	if !p.live(o) {
		return stopping
	}
	if _, dying := p.f.Kills[o.ID]; dying {
		return stopping
	}
	if p.condemn(c, kind, o) {
		return stopping
	}
	return up
}

// outdated tells whether a newer instance was made than the newest that the
// record shows.
func (p *planner) outdated(o *Instance) bool {
	facts := p.f.Containers[o.Name]
	return facts.Last != nil && facts.Last.ID != o.ID && facts.Instances > o.RestartCount+1
}

// remembered judges a container whose instances the runtime has lost: the
// journal tells how the last one ended; one that was never seen to end counts
// as killed.
func (p *planner) remembered(c *v1.Container, sandbox string) standing {
	last := p.f.Containers[c.Name].Last
	if last == nil || sandbox != "" && last.Sandbox != sandbox {
		return absent
	}
	if last.Exit == nil {
		p.refresh() // made a moment ago, or gone: the next record tells
		return stopping
	}
	exit := restart.Exit{Code: last.Exit.Code, ByProbe: p.f.Containers[c.Name].ByProbe == last.ID}
	if p.f.Containers[c.Name].Replaced != last.ID && restart.Decide(p.pod, c, exit) == restart.Stay {
		return done
	}
	return due
}

// ended is the last instance of a container that ended, unless a newer one runs.
func (p *planner) ended(name string) (id string, at time.Time, ok bool) {
	if o := p.newest(name, ""); o != nil && !p.outdated(o) {
		return o.ID, o.FinishedAt, o.State == Exited
	}
	if last := p.f.Containers[name].Last; last != nil && last.Exit != nil {
		return last.ID, last.Exit.At, true
	}
	return "", time.Time{}, false
}

// condemn notes a running container for killing when its definition changed or
// a probe said so.
func (p *planner) condemn(c *v1.Container, kind pod.ContainerKind, o *Instance) bool {
	if kind == pod.Ephemeral {
		return false
	}
	name, grace := "Container "+c.Name, containerGrace(p.pod)
	if kind != pod.Regular {
		name = "Init container " + c.Name
	}
	verdict := p.in.Verdicts[o.ID]
	restarts := kind == pod.Sidecar || restart.Decide(p.pod, c, restart.Exit{Code: 137, ByProbe: true}) != restart.Stay
	var message string
	switch {
	case o.Hash != 0 && o.Hash != pod.ContainerHash(c) && kind != pod.Init:
		message, restarts = name+" definition changed", true
	case kind == pod.Init:
		return false
	case p.restartsForSize(c, kind):
		message = "Container " + c.Name + " resize requires restart"
		facts := p.f.Containers[c.Name]
		facts.Replaced = o.ID
		p.f.Containers[c.Name] = facts
		p.kill(o, p.in.Now.Add(grace), message, true)
		return true
	case verdict.LivenessFailed:
		message = name + " failed liveness probe"
		grace = probeGrace(c.LivenessProbe, p.pod)
	case verdict.StartupFailed:
		message = name + " failed startup probe"
		grace = probeGrace(c.StartupProbe, p.pod)
	default:
		return false
	}
	facts := p.f.Containers[c.Name]
	if verdict.LivenessFailed || verdict.StartupFailed {
		facts.ByProbe = o.ID
	}
	if restarts {
		facts.Replaced = o.ID
	}
	if restarts && kind == pod.Regular {
		message += ", will be restarted"
	}
	p.f.Containers[c.Name] = facts
	p.kill(o, p.in.Now.Add(grace), message, true)
	return true
}

// probeGrace is what a container gets that a probe condemned: the probe's own
// grace wins over the pod's.
func probeGrace(probe *v1.Probe, p *v1.Pod) time.Duration {
	if probe != nil && probe.TerminationGracePeriodSeconds != nil {
		return max(time.Duration(*probe.TerminationGracePeriodSeconds)*time.Second, minPodGrace)
	}
	return containerGrace(p)
}

// ephemeral starts ephemeral containers; they are never restarted.
func (p *planner) ephemeral(active *Sandbox) {
	for kind, c := range pod.Containers(p.pod) {
		if kind == pod.Ephemeral && p.standing(c, kind, "") == absent && p.f.Containers[c.Name].Instances == 0 {
			p.launch(c, kind, active, &queue{})
		}
	}
}

// initialize sees to init containers and sidecars. ready: regular containers
// may run. failed: an init container failed for good.
func (p *planner) initialize(active *Sandbox) (ready, failed bool) {
	inits := p.pod.Spec.InitContainers
	if len(inits) == 0 || p.closing() {
		return true, false
	}
	sandbox := "none yet"
	if active != nil {
		sandbox = active.ID
	}
	initialized := p.initialized(sandbox)
	// The completed ones may have been removed: the last one that ran tells how
	// far the pod is.
	last := -1
	for i := range inits {
		if p.standing(&inits[i], initKind(&inits[i]), sandbox) != absent {
			last = i
		}
	}
	line := &queue{}
	for i := range inits {
		c := &inits[i]
		kind := initKind(c)
		at := p.standing(c, kind, sandbox)
		if kind == pod.Sidecar {
			if at == up {
				p.hooked(c)
			}
			if at == due || at == absent && (initialized || i < last || i == last+1 && p.reached(inits, last, sandbox, initialized)) {
				p.launch(c, kind, active, line)
			}
			continue
		}
		if initialized || i < last {
			continue
		}
		switch {
		case at == due, at == absent && i == last+1 && p.reached(inits, last, sandbox, initialized):
			p.launch(c, kind, active, line)
		case at == done && !p.succeeded(c, sandbox):
			return false, true
		}
	}
	return initialized || last == len(inits)-1 && p.reached(inits, last, sandbox, initialized), false
}

// closing tells whether what the pod is for comes to its end: every regular
// container has ended, or is being stopped, for good. Its sidecars are then as
// those of a pod that is being ended: a probe does not stop them, and nothing
// starts them again.
func (p *planner) closing() bool {
	for i := range p.pod.Spec.Containers {
		c := &p.pod.Spec.Containers[i]
		switch p.standing(c, pod.Regular, "") {
		case done:
		case stopping:
			if !p.lastOf(c) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// lastOf tells whether no other instance follows the one of a container that is
// being stopped.
func (p *planner) lastOf(c *v1.Container) bool {
	o := p.newest(c.Name, "")
	if o == nil || p.outdated(o) || p.f.Containers[c.Name].Replaced == o.ID {
		return false
	}
	exit := p.exit(o)
	exit.Code = 137
	return restart.Decide(p.pod, c, exit) == restart.Stay
}

func initKind(c *v1.Container) pod.ContainerKind {
	if pod.IsSidecar(c) {
		return pod.Sidecar
	}
	return pod.Init
}

// initialized: a regular container was made in this sandbox, so that all init
// containers must have been done.
func (p *planner) initialized(sandbox string) bool {
	for i := range p.pod.Spec.Containers {
		name := p.pod.Spec.Containers[i].Name
		if p.newest(name, sandbox) != nil {
			return true
		}
		if last := p.f.Containers[name].Last; last != nil && last.Sandbox == sandbox {
			return true
		}
	}
	return false
}

// reached tells whether the init container at index last lets the next one
// start: it is done, or a sidecar that has started.
func (p *planner) reached(inits []v1.Container, last int, sandbox string, initialized bool) bool {
	if last < 0 || initialized {
		return true
	}
	c := &inits[last]
	if !pod.IsSidecar(c) {
		return p.standing(c, pod.Init, sandbox) == done && p.succeeded(c, sandbox)
	}
	if p.standing(c, pod.Sidecar, sandbox) != up {
		return false
	}
	if p.flying(Action{Kind: Start, Container: c.Name}.Key()) {
		return false // its postStart hook runs
	}
	return c.StartupProbe == nil || p.in.Verdicts[p.newest(c.Name, sandbox).ID].Started
}

// succeeded tells whether the newest instance ended with 0.
func (p *planner) succeeded(c *v1.Container, sandbox string) bool {
	if o := p.newest(c.Name, sandbox); o != nil && !p.outdated(o) {
		return o.State == Exited && o.ExitCode == 0
	}
	last := p.f.Containers[c.Name].Last
	return last != nil && last.Exit != nil && last.Exit.Code == 0
}
