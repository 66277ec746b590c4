// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// outset is what a worker notes before it gathers the facts: the changes so far, and
// whether a replica is behind what the pod waits for.
type outset struct {
	changes changes
	behind  bool
}

func (w *worker) outset() outset {
	w.l.mu.Lock()
	o := outset{changes: w.l.changes}
	w.l.mu.Unlock()
	o.behind = w.fresh.behind()
	return o
}

// heed registers the topics that the round's plan depends on. A topic that has
// changed since the outset wakes the worker at once: it was not registered then.
func (w *worker) heed(from outset, in *step.Input, plan *step.Plan) {
	f := &plan.Facts
	heeds := [topics]bool{
		nodeResources: f.NotYet != nil || f.State == step.Rejected && w.spec.static(),
		apiObjects:    f.State == step.Syncing && plan.Wait != nil,
		fullNames:     in.Holder != "",
		revisions:     from.behind,
	}
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	w.l.heedLocked(w.mailbox, heeds)
	for t, heeded := range heeds {
		if heeded && w.l.changes[t] != from.changes[t] {
			w.poke()
		}
	}
}
