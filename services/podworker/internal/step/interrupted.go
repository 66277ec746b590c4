package step

import "slices"

// interrupted takes an instance whose start nobody answered for one that was only
// created: the runtime gives up a start when who asked dies, and so does a runtime
// that dies. One that the runtime said it could not start is an exit like others.
func (p *planner) interrupted() {
	cloned := false
	for i := range p.in.Observed.Containers {
		o := &p.in.Observed.Containers[i]
		f, failed := p.f.Failures[Action{Kind: Start, Container: o.Name}.Key()]
		if !o.NeverRan || o.RestartCount < p.f.Containers[o.Name].Instances || failed && !f.Away {
			continue
		}
		if !cloned {
			p.in.Observed.Containers, cloned = slices.Clone(p.in.Observed.Containers), true
		}
		p.in.Observed.Containers[i].State = Created
	}
}
