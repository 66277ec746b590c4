// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// topic is a kind of fact that does not belong to one pod. A worker is woken by
// every change of its own pod's facts, and by a change of a topic while it waits for
// one: on a full node there are many changes, and few workers that depend on them.
type topic int

const (
	// nodeResources: what the node has, and what its pods hold.
	nodeResources topic = iota
	// apiObjects: ConfigMaps, Secrets, Services, RuntimeClasses and the Node.
	apiObjects
	// fullNames: which pods of one full name run or hold it.
	fullNames
	// revisions: how far the replicas have come that show what a command did.
	revisions
	topics
)

// changes counts the changes of each topic.
type changes [topics]uint64

// changed notes a change of a topic and wakes the workers that wait for one.
func (l *loop) changed(t topic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changedLocked(t)
}

func (l *loop) changedLocked(t topic) {
	l.changes[t]++
	for _, w := range l.workers {
		if w.heeds[t] {
			w.poke()
		}
	}
}

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
	w.heeds = heeds
	for t, heeded := range heeds {
		if heeded && w.l.changes[t] != from.changes[t] {
			w.poke()
		}
	}
}

// claim takes a full name for a pod; it returns the pod that holds it instead.
func (l *loop) claim(name string, uid types.UID) types.UID {
	for _, r := range l.in.Records.Items() {
		if r.UID != uid && pod.BuildFullName(r.Name, r.Namespace) == name && r.Alive() {
			return r.UID
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder, ok := l.claims[name]; ok && holder != uid {
		return holder
	}
	l.claims[name] = uid
	return ""
}

// unclaim gives a full name back and wakes the pods that wait for it.
func (l *loop) unclaim(name string, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claims[name] == uid {
		delete(l.claims, name)
		l.changedLocked(fullNames)
	}
}
