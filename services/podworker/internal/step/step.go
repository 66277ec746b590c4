// SPDX-License-Identifier: Apache-2.0

package step

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Step plans. The same input gives the same plan.
func Step(in Input) Plan {
	p := &planner{}
	p.view = view{in: in, f: in.Facts.clone(), pod: in.pod()}
	p.waits, p.cancelling = map[string]ContainerWait{}, map[Key]bool{}
	p.setBack()
	p.rebooted()
	p.trust()
	p.interrupted()
	p.learn()
	for {
		before := p.f.State
		p.state()
		if p.f.State == before || p.plan.Again {
			break
		}
		p.waits = map[string]ContainerWait{}
		p.plan.Wait = nil
	}
	p.finishWaits()
	p.plan.Facts = p.f
	return p.plan
}

// pod is the specification a pod is handled by; nil for an orphan.
func (in *Input) pod() *v1.Pod {
	if in.Desired != nil {
		return in.Desired.Pod
	}
	return in.Accepted
}

func (p *planner) state() {
	if p.f.StartedAt.IsZero() {
		p.f.StartedAt = p.in.Now
		if p.pod != nil && p.pod.Status.StartTime != nil {
			p.f.StartedAt = p.pod.Status.StartTime.Time
		}
	}
	switch p.f.State {
	case Pending:
		p.pending()
	case Syncing:
		p.syncing()
	case Terminating:
		p.terminating()
	case Terminated:
		p.terminated()
	case Released:
		p.released()
	case Rejected:
		p.rejected()
	}
}

// finishWaits orders the waits and keeps Since for as long as a wait lasts.
func (p *planner) finishWaits() {
	if p.pod != nil {
		for _, c := range pod.Containers(p.pod) {
			if w, ok := p.waits[c.Name]; ok {
				p.plan.Waits = append(p.plan.Waits, w)
			}
		}
	}
	if w := p.plan.Wait; w != nil {
		w.Since = p.in.Now
		if was := p.in.Facts.Wait; was != nil && was.Owner == w.Owner && was.Step == w.Step {
			w.Since = was.Since
		}
	}
	p.f.Wait = p.plan.Wait
	slices.Sort(p.plan.Cancel)
}
