// SPDX-License-Identifier: Apache-2.0

package step

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// view answers questions about a pod from an input and the facts as they are. Its methods
// change neither. It has many methods because each is one question.
type view struct {
	in  Input
	f   Facts
	pod *v1.Pod // desired, else accepted; nil for an orphan
}

// newest is the newest instance of a container that was started; in one sandbox
// only when that is named.
func (v view) newest(name, sandbox string) *Instance {
	for i := range v.in.Observed.Containers {
		o := &v.in.Observed.Containers[i]
		if o.Name == name && o.State != Created && (sandbox == "" || o.Sandbox == sandbox) {
			return o
		}
	}
	return nil
}

func (v view) instanceByID(id string) *Instance {
	for i := range v.in.Observed.Containers {
		if v.in.Observed.Containers[i].ID == id {
			return &v.in.Observed.Containers[i]
		}
	}
	return nil
}

// outdated reports whether a newer instance was made than the newest that the
// record shows.
func (v view) outdated(o *Instance) bool {
	facts := v.f.Containers[o.Name]
	return facts.Last != nil && facts.Last.ID != o.ID && facts.Instances > o.RestartCount+1
}

// live reports whether an instance runs, or may run.
func (v view) live(o *Instance) bool {
	return (o.State == Running || o.State == Unknown) && !v.f.Dead[o.ID]
}

// running reports whether the instance of that ID is live.
func (v view) running(id string) bool {
	o := v.instanceByID(id)
	return o != nil && v.live(o)
}

func (v view) aliveContainers() bool {
	for i := range v.in.Observed.Containers {
		if v.live(&v.in.Observed.Containers[i]) {
			return true
		}
	}
	return false
}

// alive reports whether anything of the pod runs.
func (v view) alive() bool {
	return slices.ContainsFunc(v.in.Observed.Sandboxes, func(s Sandbox) bool { return s.Ready && !v.f.Stopped[s.ID] }) || v.aliveContainers()
}

// ended is the last instance of a container that ended, unless a newer one runs.
func (v view) ended(name string) (id string, at time.Time, ok bool) {
	last := v.f.Containers[name].Last
	if o := v.newest(name, ""); o != nil && !v.outdated(o) && (last == nil || last.ID != o.ID || o.State != Exited) {
		return o.ID, o.FinishedAt, o.State == Exited
	}
	if last != nil && last.Exit != nil {
		return last.ID, last.Exit.At, true
	}
	return "", time.Time{}, false
}

// succeeded reports whether the newest instance ended with 0.
func (v view) succeeded(c *v1.Container, sandbox string) bool {
	if o := v.newest(c.Name, sandbox); o != nil && !v.outdated(o) {
		return o.State == Exited && o.ExitCode == 0
	}
	last := v.f.Containers[c.Name].Last
	return last != nil && last.Exit != nil && last.Exit.Code == 0
}

// initialized: a regular container was made in this sandbox, so that all init
// containers must have been done.
func (v view) initialized(sandbox string) bool {
	for i := range v.pod.Spec.Containers {
		name := v.pod.Spec.Containers[i].Name
		if v.newest(name, sandbox) != nil {
			return true
		}
		if last := v.f.Containers[name].Last; last != nil && last.Sandbox == sandbox {
			return true
		}
	}
	return false
}

// lastOf reports whether no other instance follows the one of a container that is
// being stopped.
func (v view) lastOf(c *v1.Container, a assessment) bool {
	if a.stop != nil {
		return !a.stop.replaced
	}
	o := v.newest(c.Name, "")
	if o == nil || v.outdated(o) || v.f.Containers[c.Name].Replaced == o.ID {
		return false
	}
	return restart.Decide(v.pod, c, restart.Exit{Code: killedExitCode, Ahead: true}) == restart.Stay
}

// replaced reports whether an instance is one that another takes the place of, or
// older than that.
func (v view) replaced(o *Instance) bool {
	newest := v.newest(o.Name, "")
	return newest != nil && v.f.Containers[o.Name].Replaced == newest.ID
}

// ruled reports whether a container says for itself when it restarts.
func (v view) ruled() bool {
	for kind, c := range pod.Containers(v.pod) {
		if kind == pod.Regular && c.RestartPolicy != nil {
			return true
		}
	}
	return false
}

// usable: the newest sandbox is the only ready one, in the network the pod asks
// for, and has an address.
func (v view) usable() bool {
	all := v.in.Observed.Sandboxes
	newest := all[0]
	if !newest.Ready || v.f.Stopped[newest.ID] {
		return false
	}
	for _, s := range all[1:] {
		if s.Ready && !v.f.Stopped[s.ID] {
			return false
		}
	}
	if newest.HostNetwork != v.pod.Spec.HostNetwork {
		return false
	}
	return newest.HostNetwork || len(newest.IPs) > 0
}

func (v view) hasHook(o *Instance) bool {
	if v.pod != nil {
		if c, _ := pod.FindContainer(v.pod, o.Name); c != nil {
			return c.Lifecycle != nil && c.Lifecycle.PreStop != nil
		}
	}
	return o.PreStop
}

// calledFinished reports whether the pod ends because the API server has it as over.
func (v view) calledFinished() bool {
	return v.f.Termination.Cause == Finished && v.in.Desired != nil && pod.IsTerminalPhase(v.in.Desired.Pod.Status.Phase)
}

// rewritten reports whether the manifest of a static pod was removed and written
// again since the pod was taken up: what there is of it belongs to the former.
func (v view) rewritten() bool {
	d := v.in.Desired
	if d == nil || !pod.IsStatic(d.Pod) || d.Begun.IsZero() {
		return false
	}
	if v.f.Begun.IsZero() { // config did not tell then; a start that lies ahead is of before the clock was set back
		return d.Begun.After(v.f.StartedAt) || v.f.StartedAt.After(v.in.Now)
	}
	return d.Begun.After(v.f.Begun)
}

// attempt is the restart count of the next instance.
func (v view) attempt(name string) int {
	n := max(v.f.Containers[name].Instances, v.in.Logged[name])
	for i := range v.in.Observed.Containers {
		if o := &v.in.Observed.Containers[i]; o.Name == name && v.stuck(o) {
			n = max(n, o.RestartCount+1) // its number is taken
		}
	}
	if n > 0 || v.in.Desired == nil {
		return n
	}
	status := &v.in.Desired.Pod.Status
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			s := &list[i]
			if s.Name == name && s.RestartCount == 0 && s.State.Waiting != nil && s.LastTerminationState.Terminated == nil {
				return 0 // made, perhaps, and not started
			}
			if s.Name == name && (s.ContainerID != "" || s.RestartCount > 0 || s.LastTerminationState.Terminated != nil) {
				return int(s.RestartCount) + 1
			}
		}
	}
	return 0
}

// mostRemovals is how often the removal of an instance is tried, in about seven seconds,
// before the next is started beside it.
const mostRemovals = 4

// stuck reports whether an instance that never started is one that the runtime does not
// remove. containerd has such where a caller died within StartContainer: "cannot delete
// running task", until the task's process ends.
func (v view) stuck(o *Instance) bool {
	f := v.f.Failures[Action{Kind: Remove, ID: o.ID}.Key()]
	return o.State == Created && !f.Away && f.Count >= mostRemovals
}

// unremoved is why an instance of a container is not removed, or of any for "".
func (v view) unremoved(name string) string {
	for _, o := range v.in.Observed.Containers {
		if f, failed := v.f.Failures[Action{Kind: Remove, ID: o.ID}.Key()]; failed && (name == "" || o.Name == name) {
			return f.Message
		}
	}
	return ""
}

// restartsForSize reports whether a running container gets what is allocated only
// by a restart.
func (v view) restartsForSize(c *v1.Container, kind pod.ContainerKind) bool {
	r, size := &v.in.Resources, v.f.Containers[c.Name].Size
	return kind != pod.Init && r.Held && r.Blocked == "" && r.Allocation > r.Settled && size != nil &&
		pod.RestartsFor(c, *size, pod.SizeOf(v.pod, c))
}

// restartSources are the containers whose last exit asks for a restart of all.
func (v view) restartSources() (names []string) {
	for kind, c := range pod.Containers(v.pod) {
		if kind == pod.Ephemeral {
			continue
		}
		o := v.newest(c.Name, "")
		if o == nil || o.State != Exited || v.outdated(o) || v.replaced(o) {
			continue
		}
		if restart.Decide(v.pod, c, restart.Exit{Code: o.ExitCode}) == restart.AllAgain {
			names = append(names, c.Name)
		}
	}
	return names
}

// nextToReset is the next container to remove: regular ones before init ones, those
// that asked for the restart last; of equals the later one in the spec.
func (v view) nextToReset() *Instance {
	var best *Instance
	rank := 4
	for kind, c := range pod.Containers(v.pod) {
		i := slices.IndexFunc(v.in.Observed.Containers, func(o Instance) bool { return o.Name == c.Name && !v.stuck(&o) })
		if i < 0 || kind == pod.Ephemeral {
			continue
		}
		r := 0
		if kind != pod.Regular {
			r = 1
		}
		if slices.Contains(v.f.RestartAll.Sources, c.Name) {
			r += 2
		}
		if r <= rank {
			best, rank = &v.in.Observed.Containers[i], r
		}
	}
	return best
}

// shutdownOutcome is none for a static pod: it is not over, for it runs again when
// the node does.
func (v view) shutdownOutcome() *Outcome {
	if pod.IsStatic(v.pod) {
		return nil
	}
	return &Outcome{Kind: "Shutdown", Reason: reasonShutdown, Message: shutdownMessage, Disruption: true, At: v.in.Now}
}

// undeclared reports whether the pod has changed since volume was told of it.
func (v view) undeclared() bool {
	return v.in.Desired != nil && v.f.Declared != v.in.Desired.Fingerprint
}
