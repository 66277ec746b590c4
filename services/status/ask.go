// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sextant-node/sextant/services/status/internal/gather"
)

const (
	// retryHeld is how often pods that are held are looked at again.
	retryHeld = time.Second
	// askLimit bounds one question to the owner of a fact.
	askLimit = 500 * time.Millisecond
)

// heldPod is a pod whose status is not rendered now.
type heldPod struct {
	why gather.Hold
	// about is the fact that another owner may know better of; nil when no question
	// would help.
	about    any
	question question
}

// question is how far the other owner was asked.
type question int

// The states of a question. An owner that does not answer is asked again after retryHeld.
const (
	unasked question = iota
	asked
	answered
)

// answer is how a question to an owner ended, for all pods it was asked for.
type answer struct {
	why gather.Hold
	err error
}

// hold notes why a pod is held. A pod that podworker has not taken up wakes the loop by
// itself when it is.
func (l *podLoop) hold(uid string, why gather.Hold, in gather.Input) {
	if why == gather.HoldUnknown {
		delete(l.held, uid)
		return
	}
	var about any
	switch why {
	case gather.HoldWorker:
		about = in.Record
	case gather.HoldStopped:
		about = in.Worker
	}
	if h := l.held[uid]; h == nil || h.why != why || h.about != about {
		l.held[uid] = &heldPod{why: why, about: about}
	}
}

// tell adds to the facts of a pod what was asked about them. worked reports whether in.Worker
// is podworker's word.
func (l *podLoop) tell(uid string, in *gather.Input, worked bool) {
	h := l.held[uid]
	if h == nil || h.question != answered {
		return
	}
	switch h.why {
	case gather.HoldWorker:
		// One that has just started answers for the pods it has taken up again.
		in.WorkerAnswers = in.Record == h.about && worked
	case gather.HoldStopped:
		in.RecordAnswers = in.Worker == h.about
	}
}

// ask asks the owners of facts, once for all pods that are held for want of an answer,
// and does not wait: a neighbour that hangs delays nothing but these pods.
func (l *podLoop) ask(ctx context.Context, group *sync.WaitGroup) {
	for why, pull := range map[gather.Hold]func(context.Context) error{
		gather.HoldWorker: l.in.workers.Pull, gather.HoldStopped: l.in.records.Pull,
	} {
		if l.asking[why] {
			continue
		}
		for _, h := range l.held {
			if h.why == why && h.question == unasked {
				h.question, l.asking[why] = asked, true
			}
		}
		if !l.asking[why] {
			continue
		}
		group.Go(func() {
			limited, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			l.answers <- answer{why, pull(limited)} // there is room: one of each is under way
		})
	}
}

// answered has the pods looked at that an owner was asked about.
func (l *podLoop) answered(a answer) {
	delete(l.asking, a.why)
	if a.err != nil {
		return
	}
	var uids []string
	for uid, h := range l.held {
		if h.why == a.why && h.question == asked {
			h.question = answered
			uids = append(uids, uid)
		}
	}
	l.Mark(uids)
}

// retry has every held pod looked at, and asked about, again.
func (l *podLoop) retry() {
	for _, h := range l.held {
		h.question = unasked
	}
	l.Mark(slices.Collect(maps.Keys(l.held)))
}
