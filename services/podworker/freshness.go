// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// generation counts acts, and how many of them the newest record reflects, as
// generation and observedGeneration of an API object do.
type generation struct{ made, observed uint64 }

func (g generation) current() bool { return g.made == g.observed }

// refreshState is how far a request to pleg for a newer record is.
type refreshState int

const (
	noRefresh refreshState = iota
	refreshing
	// refreshAgain: the record under way will be too old.
	refreshAgain
)

// freshness reads what other services publish about one pod, and knows whether that
// reflects what its worker did to them: a worker reads its writes.
type freshness struct {
	in  *Inputs
	uid types.UID
	// changes counts acts on the runtime, and a terminal phase seen at the API server;
	// creates those that add a sandbox or a container.
	changes, creates generation
	// lists counts the reasons to have the runtime list what it has of the pod: something
	// may be there that neither the record nor made shows.
	lists generation
	// made and removed are what was since the last refresh that was answered began.
	made    []step.Instance
	removed []string
	// terminal: the API server has the pod as finished.
	terminal bool
	// ahead: the replica has not passed since, and record, the answer to the last refresh, is
	// newer than its own.
	ahead  bool
	record *observe.Record
	since  feed.Barrier
	// commands to volume and resource, by kind.
	commands map[step.Kind]feed.Barrier

	refresh refreshState
	// asked is the change that the refresh under way will show.
	asked uint64
	// failure is why the last refresh failed, failures how many have in a row, retryAt when
	// it is tried again.
	failure  string
	failures int
	retryAt  time.Time
}

// changed notes that an act on the runtime has ended, and what it made. After one that
// failed nothing is known for certain.
func (f *freshness) changed(a step.Action, id string, ok bool) {
	f.changes.made++
	if a.Kind.Creates() {
		f.creates.made++
	}
	switch {
	case !ok:
		f.lists.made++
	case a.Kind.Creates():
		f.made = append(f.made, step.Instance{ID: id, Sandbox: a.Sandbox})
	case a.Kind == step.Remove || a.Kind == step.RemoveSandbox:
		f.removed = append(f.removed, a.ID)
	}
}

// inventory is everything there may be of the pod, nil if that is not known.
func (f *freshness) inventory() *plegv1.Inventory {
	if !f.lists.current() {
		return nil
	}
	all := &plegv1.Inventory{Containers: map[string]string{}, Removed: f.removed}
	record, _ := f.current()
	if record != nil {
		for _, s := range record.Sandboxes {
			all.Sandboxes = append(all.Sandboxes, s.ID)
		}
		for _, c := range record.Containers {
			all.Containers[c.ID] = c.Sandbox
		}
	}
	for _, m := range f.made {
		if m.Sandbox == "" {
			all.Sandboxes = append(all.Sandboxes, m.ID)
		} else {
			all.Containers[m.ID] = m.Sandbox
		}
	}
	return all
}

// finished notes that the API server has the pod as finished.
func (f *freshness) finished() {
	if !f.terminal {
		f.terminal = true
		f.changes.made++
	}
}

// commanded notes the answer to a command; before is position as it was then.
func (f *freshness) commanded(kind step.Kind, answer, before feed.Revision) {
	if answer == (feed.Revision{}) {
		return
	}
	f.commands[kind] = feed.NewBarrier(answer, before)
	switch kind {
	case step.Declare, step.Withdraw:
		f.in.Volumes.LookFor(answer)
	default:
		f.in.Allocations.LookFor(answer)
	}
}

// position is where the replica stands that will show what a command does.
func (f *freshness) position(kind step.Kind) (at feed.Revision, complete bool) {
	switch kind {
	case step.Declare, step.Withdraw:
		at, complete, _, _ = f.in.Volumes.State()
	case step.Admit, step.Resize, step.Settle, step.Release:
		at, complete, _, _ = f.in.Allocations.State()
	}
	return at, complete
}

// behind reports whether a replica has not come to the revision that a command answered
// with, or that a source of pods names. Reaching it need not change an item of the pod.
func (f *freshness) behind() bool {
	for kind, command := range f.commands {
		if !command.Passed(f.position(kind)) {
			return true
		}
	}
	for source := range f.in.Sources.Items() {
		if !f.in.reachedSource(source) {
			return true
		}
	}
	return false
}

// unlisted reports whether no source lists the pod.
func (f *freshness) unlisted() bool {
	_, listed, known := f.in.Pods.Lookup(string(f.uid))
	return !listed && known
}

// refreshed takes the answer to a refresh; since tells where the replica shows it.
func (f *freshness) refreshed(record *observe.Record, since feed.Barrier) {
	f.ahead, f.record, f.since = true, record, since
}

// follow lets go of the answer to the last refresh once the replica shows it. What the
// replica has is newer from then on, also while a pleg that begins anew has not told all.
func (f *freshness) follow() {
	if revision, complete, _, _ := f.in.Records.State(); f.ahead && f.since.Passed(revision, complete) {
		f.ahead, f.record = false, nil
	}
}

// current is the newest record there is: the replica's, or that of the last refresh
// while the replica has not come so far.
func (f *freshness) current() (record *observe.Record, known bool) {
	revision, complete, _, _ := f.in.Records.State()
	passed := f.since.Passed(revision, complete)
	if f.ahead && !passed {
		return f.record, true
	}
	if record, ok := f.in.Records.Get(string(f.uid)); ok {
		return record, true
	}
	return nil, complete || passed && f.since != (feed.Barrier{})
}

// observed is the newest record as a step wants it.
func (f *freshness) observed() step.Observed {
	record, known := f.current()
	o := step.Observed{Known: known, Verified: f.creates.current(), Current: f.changes.current(), RefreshError: f.failure}
	if record != nil {
		o.Error, o.Sandboxes, o.Containers = record.Error, record.Sandboxes, record.Containers
	}
	return o
}

// refreshDue reports whether a refresh that failed is to be tried again, although
// nothing waits for its answer: the runtime has changed since the last record.
func (f *freshness) refreshDue(now time.Time) bool {
	return !f.retryAt.IsZero() && !now.Before(f.retryAt)
}
