package step

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Change is what an Update does to one container. From is nil where it is not
// known what the container has.
type Change struct {
	Container, ID string
	From          *pod.Size
	To            pod.Size
}

// String is the change in a few words: requests and limits, in thousandths of a
// CPU and in bytes.
func (c Change) String() string {
	from := "?"
	if c.From != nil {
		from = sizeText(*c.From)
	}
	return fmt.Sprintf("%s %s -> %s", c.Container, from, sizeText(c.To))
}

func sizeText(s pod.Size) string {
	return fmt.Sprintf("cpu %d/%d memory %d/%d", s.CPURequest, s.CPULimit, s.MemoryRequest, s.MemoryLimit)
}

// resize brings the containers that run to what is allocated (KEP-1287): resource
// has given the pod's cgroup room; the containers are changed, or restarted where
// their resizePolicy says so; then resource is told, and the cgroup shrinks to it.
// Containers that do not run get their size with their next start.
func (p *planner) resize(active *Sandbox) {
	r := &p.in.Resources
	if !r.Held || r.Asked == "" {
		return
	}
	if d := p.in.Desired; d != nil && d.Asks != r.Asked {
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
func (p *planner) perform(a Action, owner string) {
	message := ""
	f, failed := p.f.Failures[a.Key()]
	if failed && !f.Away {
		p.resizeFailed(f.Message)
	}
	switch {
	case p.flyingKind(Update, Settle):
	case p.held(a.Key()):
		message = f.Message
	default:
		p.start(a)
	}
	p.waitFor(owner, "resize", message, f.Retry)
}

func (p *planner) resizeFailed(message string) {
	p.tell("resize", strconv.FormatUint(p.in.Resources.Allocation, 10)+message, Event{Warning: true, Reason: "ResizeError",
		Message: "Pod resize error: " + pod.ResizeSummary(p.pod, p.in.Resources.Generation, message)})
}

// completed tells of a resize that resource knows to be done.
func (p *planner) completed() {
	r := &p.in.Resources
	if p.f.Updated == 0 || r.Settled < p.f.Updated {
		return
	}
	p.f.Updated = 0
	p.event(Event{Reason: "ResizeCompleted", Message: "Pod resize completed: " + pod.ResizeSummary(p.pod, r.Generation, "")})
}

// changes are the running containers that have another size than is allocated.
// busy: one of them is being stopped, or started with the former.
func (p *planner) changes() (changes []Change, busy bool) {
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

// noteSizes notes what running containers have of whom it is not known: nothing
// is outstanding, so it is what is allocated.
func (p *planner) noteSizes() {
	for kind, c := range pod.Containers(p.pod) {
		facts := p.f.Containers[c.Name]
		if o := p.newest(c.Name, ""); kind == pod.Ephemeral || facts.Size != nil || o == nil || !p.live(o) {
			continue
		}
		size := pod.SizeOf(p.pod, c)
		facts.Size = &size
		p.f.Containers[c.Name] = facts
	}
}

// restartsForSize tells whether a running container gets what is allocated only
// by a restart.
func (p *planner) restartsForSize(c *v1.Container, kind pod.ContainerKind) bool {
	r, size := &p.in.Resources, p.f.Containers[c.Name].Size
	return kind != pod.Init && r.Held && r.Blocked == "" && r.Allocation > r.Settled && size != nil &&
		pod.RestartsFor(c, *size, pod.SizeOf(p.pod, c))
}
