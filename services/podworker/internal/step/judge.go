// SPDX-License-Identifier: Apache-2.0

package step

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// phase is where a container of the spec stands.
type phase int

const (
	// absent: it never ran (for init containers: not in this sandbox).
	absent phase = iota
	// up: it runs and is to go on running.
	up
	// stopping: it runs and is to stop, or is stopped but not seen dead yet.
	stopping
	// due: it ended and runs again.
	due
	// done: it ended and stays so.
	done
)

// assessment is the judgement of one container of the spec. It is made before anything
// is planned and does not change.
type assessment struct {
	phase phase
	// stop is why its newest instance is to stop; nil when nothing new says so.
	stop *stopReason
	// unread: an instance was made of which no record tells.
	unread bool
}

// stopReason is why an instance of a container is to stop while its pod goes on.
type stopReason struct {
	instance *Instance
	message  string
	grace    time.Duration
	// replaced: another instance takes its place whatever its exit code.
	replaced bool
}

// judge assesses every container of the spec. active is the sandbox in use, nil for none:
// init containers count in it only, others in any.
func (v view) judge(active *Sandbox) map[string]assessment {
	sandbox := noSandbox
	if active != nil {
		sandbox = active.ID
	}
	all := map[string]assessment{}
	for kind, c := range pod.Containers(v.pod) {
		within := ""
		if kind == pod.Init || kind == pod.Sidecar {
			within = sandbox
		}
		a := v.assess(c, kind, within)
		if o := v.newest(c.Name, within); a.phase == up && active != nil && o.Sandbox != active.ID {
			a.phase = stopping // with its sandbox, which is stale
		}
		all[c.Name] = a
	}
	return all
}

// noSandbox is the ID of no sandbox.
const noSandbox = "none yet"

// assess judges the newest instance of a container, in one sandbox only when that is
// named.
func (v view) assess(c *v1.Container, kind pod.ContainerKind, sandbox string) assessment {
	o := v.newest(c.Name, sandbox)
	if o == nil || v.outdated(o) {
		return v.remembered(c, sandbox)
	}
	switch o.State {
	case Exited:
		if v.f.Containers[c.Name].Replaced != o.ID && restart.Decide(v.pod, c, restart.Exit{Code: o.ExitCode}) == restart.Stay {
			return assessment{phase: done}
		}
		return assessment{phase: due}
	case Unknown:
		a := assessment{phase: stopping}
		if !v.f.Dead[o.ID] {
			a.stop = &stopReason{instance: o, message: `Container is in "unknown" state, try killing it before restart`, grace: containerGrace(v.pod)}
		}
		return a
	}
	if _, dying := v.f.Kills[o.ID]; dying || !v.live(o) {
		return assessment{phase: stopping}
	}
	if stop := v.stopReason(c, kind, o); stop != nil {
		return assessment{phase: stopping, stop: stop}
	}
	return assessment{phase: up}
}

// remembered judges a container whose instances the runtime has lost: the journal has how
// the last one ended; one that was never seen to end counts as killed.
func (v view) remembered(c *v1.Container, sandbox string) assessment {
	facts := v.f.Containers[c.Name]
	last := facts.Last
	if last == nil || sandbox != "" && last.Sandbox != sandbox {
		return assessment{phase: absent}
	}
	if last.Exit == nil { // made a moment ago, or gone: the next record shows it
		return assessment{phase: stopping, unread: true}
	}
	if facts.Replaced != last.ID && restart.Decide(v.pod, c, restart.Exit{Code: last.Exit.Code}) == restart.Stay {
		return assessment{phase: done}
	}
	return assessment{phase: due}
}

// stopReason is why a running instance has to stop: its definition changed, its
// resources do, or a probe failed. Nil when it goes on.
func (v view) stopReason(c *v1.Container, kind pod.ContainerKind, o *Instance) *stopReason {
	if kind == pod.Ephemeral || kind == pod.Init {
		return nil
	}
	name := "Container " + c.Name
	if kind == pod.Sidecar {
		name = "Init container " + c.Name
	}
	stop := &stopReason{instance: o, grace: containerGrace(v.pod)}
	stop.replaced = kind == pod.Sidecar || restart.Decide(v.pod, c, restart.Exit{Code: killedExitCode, Ahead: true}) != restart.Stay
	probes := v.in.Verdicts[o.ID]
	switch {
	case o.Hash != 0 && o.Hash != pod.ContainerHash(c):
		stop.message, stop.replaced = name+" definition changed", true
	case v.restartsForSize(c, kind):
		stop.message, stop.replaced = "Container "+c.Name+" resize requires restart", true
		return stop
	case probes.LivenessFailed:
		stop.message, stop.grace = name+" failed liveness probe", probeGrace(c.LivenessProbe, v.pod)
	case probes.StartupFailed:
		stop.message, stop.grace = name+" failed startup probe", probeGrace(c.StartupProbe, v.pod)
	default:
		return nil
	}
	if stop.replaced && kind == pod.Regular {
		stop.message += ", will be restarted"
	}
	return stop
}

// probeGrace is what a container gets that a probe condemned: the probe's own
// grace wins over the pod's.
func probeGrace(probe *v1.Probe, p *v1.Pod) time.Duration {
	if probe != nil && probe.TerminationGracePeriodSeconds != nil {
		return max(pod.Seconds(*probe.TerminationGracePeriodSeconds), minPodGrace)
	}
	return containerGrace(p)
}

// closing reports whether the pod's purpose comes to its end: every regular container has
// ended, or is being stopped, for good. Its sidecars are then as those of a pod that is
// being ended: a probe does not stop them, and nothing starts them again.
func (v view) closing(all map[string]assessment) bool {
	for i := range v.pod.Spec.Containers {
		c := &v.pod.Spec.Containers[i]
		switch all[c.Name].phase {
		case done:
		case stopping:
			if !v.lastOf(c, all[c.Name]) {
				return false
			}
		default:
			return false
		}
	}
	return true
}
