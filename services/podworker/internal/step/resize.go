// SPDX-License-Identifier: Apache-2.0

package step

import (
	"strconv"

	"github.com/sextant-node/sextant/pkg/pod"
)

// resizes gives running containers what is allocated.
type resizes struct{ containers }

// resize brings the containers that run to what is allocated (KEP-1287): resource
// has given the pod's cgroup room; the containers are changed, or restarted where
// their resizePolicy says so; then resource is notified, and the cgroup shrinks to it.
// Containers that do not run get their size with their next start. A pod that config does
// not list (after a restart, not yet) waits: its specification is the one accepted last,
// whose sizes may be of an allocation before the one that resource has.
func (p *resizes) resize(active *Sandbox) {
	r := &p.in.Resources
	if !r.Held || r.Asked == "" || p.in.Desired == nil {
		return
	}
	p.plan.Sized = true
	if p.in.Desired.Asks != r.Asked {
		p.ask(Resize, "resource", "resize")
	}
	p.completed()
	if r.Allocation == r.Settled {
		p.noteSizes()
		return
	}
	if p.f.Resizing != r.Allocation { // what failed was another allocation
		p.f.Resizing = r.Allocation
		delete(p.f.Failures, Action{Kind: Update}.Key())
		delete(p.f.Failures, Action{Kind: Settle}.Key())
	}
	changes, busy := p.changes()
	allocation := int(r.Allocation)
	switch {
	case active == nil || busy:
		p.wait("runtime", "resize", "containers are being restarted")
	case r.Blocked != "":
		p.resizeFailed(r.Blocked)
		p.wait("resource", "resize", r.Blocked)
	case !p.in.Observed.Current:
		p.refresh()
	case len(changes) > 0 || p.f.Updated != r.Allocation:
		p.perform(Action{Kind: Update, Sandbox: active.ID, Attempt: allocation, Changes: changes}, "runtime")
	default:
		p.perform(Action{Kind: Settle, Attempt: allocation}, "resource")
	}
}

// perform starts an action of a resize unless it is under way or held back.
func (p *resizes) perform(a Action, owner string) {
	message := ""
	f, failed := p.f.Failures[a.Key()]
	if failed && !f.Away {
		p.resizeFailed(f.Message)
	}
	switch {
	case p.flyingKind(Update, Settle):
	case p.backedOff(a.Key()):
		message = f.Message
	default:
		p.start(a)
	}
	p.waitFor(owner, "resize", message, f.Retry)
}

func (p *resizes) resizeFailed(message string) {
	p.tell("resize", strconv.FormatUint(p.in.Resources.Allocation, 10)+message, Event{Warning: true, Reason: "ResizeError",
		Message: "Pod resize error: " + pod.ResizeSummary(p.pod, p.in.Resources.Generation, message)})
}

// completed emits the event of a resize that resource knows to be done.
func (p *resizes) completed() {
	r := &p.in.Resources
	if p.f.Updated == 0 || r.Settled < p.f.Updated {
		return
	}
	p.f.Updated = 0
	p.event(Event{Reason: "ResizeCompleted", Message: "Pod resize completed: " + pod.ResizeSummary(p.pod, r.Generation, "")})
}

// changes are the running containers that have another size than is allocated.
// busy: one of them is being stopped, or started with the former.
func (p *resizes) changes() (changes []Change, busy bool) {
	for kind, c := range pod.Containers(p.pod) {
		if kind == pod.Ephemeral {
			continue
		}
		size, want := p.f.Containers[c.Name].Size, pod.SizeOf(p.pod, c)
		if size != nil && *size == want {
			continue
		}
		if p.flying(Action{Kind: Start, Container: c.Name}.Key()) {
			busy = true
			continue
		}
		o := p.newest(c.Name, "")
		if o == nil || !p.live(o) {
			continue
		}
		if _, dying := p.f.Kills[o.ID]; dying || p.outdated(o) || o.State != Running {
			busy = true
			continue
		}
		changes = append(changes, Change{Container: c.Name, ID: o.ID, From: size, To: want})
	}
	return changes, busy
}

// noteSizes notes what running containers have: nothing is outstanding, so it is what is
// allocated. A kubelet may have given them that, or started them, after this agent's last
// resize.
func (p *resizes) noteSizes() {
	for kind, c := range pod.Containers(p.pod) {
		facts := p.f.Containers[c.Name]
		if o := p.newest(c.Name, ""); kind == pod.Ephemeral || o == nil || !p.live(o) {
			continue
		}
		if size := pod.SizeOf(p.pod, c); facts.Size == nil || !p.in.Resources.Assumed && *facts.Size != size {
			facts.Size = &size
		}
		p.f.Containers[c.Name] = facts
	}
}
