// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// loopDeps is what the loop and its workers work with.
type loopDeps struct {
	in         *Inputs
	config     *currentConfig
	lookups    *lookups
	journal    *journal.Journal
	sandboxes  Sandboxes
	containers Containers
	volume     volumes
	resource   resources
	pleg       observer
	states     *feed.Owner[*podworkerv1.PodState]
	events     actuate.Recorder
	clock      clock.WithTicker
	// calm delays removals until nothing starts or ends on the node.
	calm    *calm
	metrics *metrics
	log     *slog.Logger
	// end is the end of the node.
	end *nodeEnd
	// serving is called once the feed is complete, waiting with what is missing,
	// beat each time the loop comes round.
	serving func()
	waiting func(what string)
	beat    func()
}

// ledger is what all workers work with, and what they and the loop tell each other.
type ledger struct {
	loopDeps
	running sync.WaitGroup // goroutines that work for pods

	// mu guards what follows, and shared of each worker.
	mu sync.Mutex
	// claims: the static pod that holds a full name, from admission until it is
	// released.
	claims map[string]types.UID
	// changes of the topics that workers wait for, and heeding the workers that wait.
	changes changes
	heeding [topics]map[*mailbox]bool
	// complete: every pod that is known anywhere has been looked at.
	complete bool
	// resourcesChanged is when those facts last did.
	resourcesChanged time.Time
	// inactive are the pods that do not count for the admission of others, though they may
	// hold something of the node still.
	inactive map[types.UID]bool
	// excess are dead containers of which the node has too many in all, by ID.
	excess map[string]bool
}

func newLedger(deps loopDeps) *ledger {
	l := &ledger{loopDeps: deps, claims: map[string]types.UID{}, inactive: map[types.UID]bool{}}
	for t := range l.heeding {
		l.heeding[t] = map[*mailbox]bool{}
	}
	return l
}

// seenBy is what others see of a worker's pod; ledger.mu guards it.
type seenBy struct {
	state    step.State
	priority int32
	// runs: something of it runs although nothing was decided about it.
	runs bool
	// static is nil while no specification is known.
	static *bool
}

// shared is what the loop reads and writes of a worker; ledger.mu guards it.
type shared struct {
	published bool
	// leftover: the pod is known by nothing but the folder that it left.
	leftover bool
	// names are the keys of the API objects its containers are made from, and
	// objectsChanged when one of them last changed.
	names          map[string]bool
	objectsChanged time.Time
	outward        seenBy
}

// changed notes a change of a topic and wakes the workers that wait for one.
func (l *ledger) changed(t topic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changedLocked(t)
}

func (l *ledger) changedLocked(t topic) {
	l.changes[t]++
	for w := range l.heeding[t] {
		w.poke()
	}
}

// heedLocked has the changes of some topics wake a worker, and no others.
func (l *ledger) heedLocked(w *mailbox, heeds [topics]bool) {
	for t, heeded := range heeds {
		if heeded {
			l.heeding[t][w] = true
		} else {
			delete(l.heeding[t], w)
		}
	}
}

// allInactive are the inactive pods.
func (l *ledger) allInactive() (uids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid := range l.inactive {
		uids = append(uids, string(uid))
	}
	slices.Sort(uids)
	return uids
}

// claim takes a full name for a pod; it returns the pod that holds it instead.
func (l *ledger) claim(name string, uid types.UID) types.UID {
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
func (l *ledger) unclaim(name string, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claims[name] == uid {
		delete(l.claims, name)
		l.changedLocked(fullNames)
	}
}
