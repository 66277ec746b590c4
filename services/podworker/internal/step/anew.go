package step

import "github.com/sextant-node/sextant/pkg/pod"

// renew takes a pod up again that has ended. Its restart counts and back-offs go
// on, and its dead containers stay as the former instances they are.
func (p *planner) renew() {
	if p.flyingAny() {
		p.wait("runtime", "remove", "")
		return
	}
	again := Facts{State: Pending, Containers: p.f.Containers, Pulls: p.f.Pulls}
	again.Stopped, again.Dead, again.Gone, again.Told = p.f.Stopped, p.f.Dead, p.f.Gone, p.f.Told
	for name, c := range again.Containers {
		if c.ByProbe = ""; c.Last != nil {
			c.Replaced = c.Last.ID
		}
		again.Containers[name] = c
	}
	p.f = again.clone()
	p.plan.Again = true
}

// rewritten tells whether the manifest of a static pod was removed and written
// again since the pod was taken up: what there is of it belongs to the former.
func (p *planner) rewritten() bool {
	d := p.in.Desired
	since := p.f.Begun
	if since.IsZero() {
		since = p.f.StartedAt // config did not tell then
	}
	return d != nil && pod.IsStatic(d.Pod) && d.Begun.After(since)
}
