// SPDX-License-Identifier: Apache-2.0

package step

import "github.com/sextant-node/sextant/pkg/pod"

// pin gives running containers the CPUs that resource wants them on: those of their own
// do not change, but what all others share does, with each pod that comes or goes with
// CPUs of its own. Where it is not known what a container has, it is set once.
func (p *resizes) pin() {
	if !p.in.Resources.Read {
		return
	}
	for _, c := range pod.Containers(p.pod) {
		want := p.in.Resources.cpusOf(c.Name)
		o := p.newest(c.Name, "")
		if want == "" || o == nil || o.State != Running || !p.live(o) || p.f.Pinned[o.ID] == want {
			continue
		}
		a := Action{Kind: Pin, Container: c.Name, ID: o.ID, CPUs: want}
		if _, dying := p.f.Kills[o.ID]; dying || p.flying(a.Key()) || p.flyingKind(Update) || p.backedOff(a.Key()) {
			continue
		}
		p.start(a)
	}
}

// cpusOf are the CPUs that a container is to run on, as a list; empty for no pinning.
func (r *Resources) cpusOf(container string) string {
	if own := r.OwnCPUs[container]; own != "" {
		return own
	}
	return r.SharedCPUs
}
