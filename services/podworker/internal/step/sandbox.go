// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// sandboxes makes the pod's sandbox, and takes it out of use.
type sandboxes struct{ resizes }

// fit is the pod's sandbox when it can be used, nil otherwise.
func (p *sandboxes) fit() *Sandbox {
	all := p.in.Observed.Sandboxes
	if len(all) == 0 || p.flyingKind(RunSandbox) || !p.usable() {
		return nil
	}
	return &all[0]
}

// sandbox makes the pod's sandbox.
func (p *sandboxes) sandbox() {
	if p.flyingKind(RunSandbox) {
		if p.queued(Action{Kind: RunSandbox}.Key()) {
			p.wait("podworker", "sandbox", "sandbox waits for its turn: the runtime is starting others")
			return
		}
		p.wait("runtime", "sandbox", "sandbox is being created")
		return
	}
	all := p.in.Observed.Sandboxes
	if p.over(all) {
		return
	}
	attempt := 0
	if len(all) > 0 {
		attempt = int(all[0].Attempt) + 1
		p.tell("sandbox", all[0].ID, Event{Reason: "SandboxChanged", Message: "Pod sandbox changed, it will be killed and re-created."})
		if !p.clear() {
			return
		}
	}
	p.create(attempt)
}

// over ends a pod that has lost its sandbox and has nothing left to run.
func (p *sandboxes) over(all []Sandbox) bool {
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

// create makes a sandbox when nothing stands in the way.
func (p *sandboxes) create(attempt int) {
	a := Action{Kind: RunSandbox, Attempt: attempt}
	switch {
	case p.in.Config.Unheard:
		p.wait("config", "sources", "the API server has not said yet which pods there are")
	case !p.in.Resources.Held:
		p.wait("resource", "allocation", cmp.Or(p.in.Resources.Unready, "the pod's cgroup is not there"))
	case !p.networked():
	case p.in.Handler.Waiting != "":
		if !p.in.Handler.Unread {
			p.remind("handler", p.in.Handler.Waiting, Event{Warning: true, Reason: "FailedCreatePodSandBox",
				Message: "Failed to create pod sandbox: " + p.in.Handler.Waiting})
		}
		p.wait("config", "runtime-class", p.in.Handler.Waiting)
	case p.backedOff(a.Key()):
		f := p.f.Failures[a.Key()]
		p.waitFor("runtime", "sandbox", f.Message, f.Retry)
	case !p.in.Observed.Verified:
		p.refresh()
	case p.in.Now.Before(p.f.Sandboxed.Add(sandboxPause)):
		due := p.f.Sandboxed.Add(sandboxPause)
		p.wake(due)
		p.waitFor("runtime", "sandbox", "the sandbox was made just now, and cannot be used", due)
	default:
		p.start(a)
		p.wait("runtime", "sandbox", "sandbox is being created")
	}
}

// sweep removes dead instances beyond what is kept for logs and exit codes, and
// old sandboxes that hold none.
func (p *sandboxes) sweep() {
	if !p.in.Observed.Known || p.in.Observed.Error != "" {
		return
	}
	keep := max(p.in.Settings.KeepDead, 1)
	if p.in.Settings.KeepDead < 0 {
		keep = math.MaxInt
	}
	dead := map[string]int{}
	ended := map[string]time.Time{} // the newest dead instance
	oldest := map[string]string{}   // of those to remove, by container
	held := map[string]bool{}
	for _, o := range p.in.Observed.Containers {
		held[o.Sandbox] = true
		if o.State != Exited {
			continue
		}
		if due := earlier(o.CreatedAt, p.in.Now).Add(p.in.Settings.DeadAge); p.in.Now.Before(due) {
			p.wake(due)
			continue
		}
		if dead[o.Name]++; dead[o.Name] == 1 {
			ended[o.Name] = earlier(o.FinishedAt, p.in.Now)
		}
		switch due := ended[o.Name].Add(deadReadWithin); {
		case !p.in.Excess[o.ID] && dead[o.Name] <= keep:
		case !p.in.Excess[o.ID] && p.in.Now.Before(due):
			p.wake(due)
		default:
			oldest[o.Name] = o.ID
		}
	}
	// One at a time, the oldest first: otherwise status could see an older instance without the
	// newer one, and report it as the last state.
	for _, name := range slices.Sorted(maps.Keys(oldest)) {
		p.remove(Action{Kind: Remove, ID: oldest[name], Container: name})
	}
	for i, s := range p.in.Observed.Sandboxes {
		if i == 0 || s.Ready || held[s.ID] {
			continue
		}
		p.remove(Action{Kind: RemoveSandbox, ID: s.ID})
	}
}
