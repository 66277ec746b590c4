// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// worker sees to one pod: gather, decide, act, publish, and again when woken. Its fields
// belong to its goroutine, but for the mailbox and shared.
type worker struct {
	*mailbox
	shared

	l   *ledger
	uid types.UID
	// settle is called after the pod was published first.
	settle func()

	facts   step.Facts
	spec    specification
	fresh   freshness
	durable durability
	meter   meter
	flights map[step.Key]*flight
	// logged is how many instances of a container the log directory shows, nil until read.
	logged map[string]int
	// messages of containers that have exited, by ID.
	messages map[string]*podworkerv1.ContainerMessage
	// announced is the state that was announced last, without what the pod waits for, and
	// wait the last of that.
	announced []byte
	wait      *podworkerv1.Wait
	lives     lives
	// claimed is the full name the pod holds, empty for none.
	claimed string
}

func newWorker(l *ledger, settle func(), uid types.UID, record journal.Record, kept bool, found *v1.Pod) *worker {
	w := &worker{
		mailbox: newMailbox(), shared: shared{leftover: found != nil}, l: l, uid: uid, settle: settle,
		spec:    specification{identity: found},
		fresh:   freshness{in: l.in, uid: uid, commands: map[step.Kind]feed.Barrier{}},
		meter:   meter{metrics: l.metrics, born: l.clock.Now()},
		flights: map[step.Key]*flight{}, messages: map[string]*podworkerv1.ContainerMessage{}, lives: lives{journaled: kept},
	}
	if kept || !l.journal.Intact && !l.complete {
		// A former process may have made something that the record does not show yet.
		// Where the journal is whole and does not know the pod, or the node was looked
		// through before, it has not.
		w.fresh.changes.made, w.fresh.creates.made, w.fresh.lists.made = 1, 1, 1
	}
	if kept {
		w.facts, w.durable.facts = record.Facts, record.Facts
		if err := w.spec.restore(uid, record); err != nil {
			l.log.Error("journaled pod is of no use", service.KeyUID, string(uid), service.KeyError, err.Error())
		}
		if s := w.facts.State; record.Source != pod.SourceAPI && (s == step.Syncing || s == step.Terminating || s == step.Terminated) {
			w.claimed = pod.FullName(w.spec.identity)
			if _, taken := l.claims[w.claimed]; !taken { // l.mu is held
				l.claims[w.claimed] = uid
			}
		}
	}
	w.poke()
	return w
}

// accept takes over the specification that config lists.
func (w *worker) accept(d *step.Desired) {
	changed, err := w.spec.accept(d)
	if err != nil {
		w.l.log.Error("pod does not marshal", service.KeyUID, string(w.uid), service.KeyError, err.Error())
	}
	if changed {
		names := named(w.spec.accepted)
		w.l.mu.Lock()
		w.names = names
		w.l.mu.Unlock()
	}
}

// allocated is the pod with the resources it is allocated: as resource says, or while
// resource does not say it, those of the specification accepted last. A pod that was not
// admitted has what it asks for, unless the agent before this one left it with others: what
// it did not allocate is judged as any resize, once the pod is admitted with what it has.
func (w *worker) allocated(d *step.Desired, item *resourcev1.PodAllocation) *step.Desired {
	sizes, err := item.GetSizes(), error(nil)
	if len(sizes) == 0 {
		var had *v1.PodSpec
		if w.facts.Admitted != nil && w.spec.accepted != nil {
			had = pod.Sizes(w.spec.accepted)
		} else {
			had = pod.ReportedSizes(d.Pod)
		}
		if had == nil {
			return d
		}
		sizes, err = had.Marshal()
	}
	sized := d
	if err == nil {
		sized, err = w.spec.withSizes(d, sizes)
	}
	if err != nil {
		w.l.log.Error("allocation is of no use", service.KeyUID, string(w.uid), service.KeyError, err.Error())
	}
	return sized
}

// pod is the pod as far as it is known, and its fingerprint, 1 when config does not list it.
func (w *worker) pod() (p *v1.Pod, print uint64) {
	if d, _ := w.l.in.desired(w.uid, w.spec.source); d != nil {
		d = w.allocated(d, w.fresh.allotment().item)
		return d.Pod, d.Fingerprint
	}
	if w.spec.accepted != nil {
		return w.spec.accepted, 1
	}
	if w.spec.identity != nil {
		return w.spec.identity, 1
	}
	p = &v1.Pod{}
	p.UID = w.uid
	return p, 1
}
