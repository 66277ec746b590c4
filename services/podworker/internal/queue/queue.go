// SPDX-License-Identifier: Apache-2.0

// Package queue bounds how much of one kind is done at a time: first come, first
// served, but for those that go ahead of others, and none waits for one that is stuck.
//
// It owns nothing but who runs and who waits, and begins empty.
package queue

import (
	"container/list"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Rules of a queue.
type Rules struct {
	// Limit is how many may run; 0 for no limit.
	Limit int
	// Patience lets one more begin each time it has passed without any having
	// begun; 0: never.
	Patience time.Duration
	// Spare is the patience while the machine has processors to spare (NewSparing).
	Spare time.Duration
}

// Queue has callers wait for their turn. Make it with New.
type Queue struct {
	clock clock.WithDelayedExecution
	hold  func() time.Duration // nil: none is held back
	spare func() bool          // nil: the patience is the same at all times

	mu      sync.Mutex
	rules   Rules
	running int
	last    time.Time // when one began
	waiting list.List // of waiter, by their until
	lender  clock.Timer
}

// waiter waits for its turn to be closed.
type waiter struct {
	turn chan struct{}
	// until is when it is held back no longer, and what the order goes by.
	until time.Time
}

// New makes an empty queue.
func New(c clock.WithDelayedExecution) *Queue { return &Queue{clock: c} }

// NewHeld makes an empty queue in which none begins for as long as hold says, and which
// EnterHeld enters. hold is asked again after that; it must not call the queue.
func NewHeld(c clock.WithDelayedExecution, hold func() time.Duration) *Queue {
	return &Queue{clock: c, hold: hold}
}

// NewSparing makes an empty queue that has the patience Rules.Spare while spare reports
// that the machine has processors to spare. spare must not call the queue.
func NewSparing(c clock.WithDelayedExecution, spare func() bool) *Queue {
	return &Queue{clock: c, spare: spare}
}

// noticeable is how long a wait is before it is reported.
const noticeable = time.Second

type tellKey struct{}

// Tell has a wait for a queue under the context reported by tell once it has lasted a
// second, and its end. tell is called by the goroutine that waits and must not block.
func Tell(ctx context.Context, tell func(waiting bool)) context.Context {
	return context.WithValue(ctx, tellKey{}, tell)
}

type aheadKey struct{}

// Ahead has those that enter a queue under the context go before those that came up to by earlier.
func Ahead(ctx context.Context, by time.Duration) context.Context {
	return context.WithValue(ctx, aheadKey{}, by)
}

// Enter waits for a turn; Leave must follow. The newest rules count. An error is
// that of ctx, and needs no Leave.
func (q *Queue) Enter(ctx context.Context, rules Rules) error {
	return q.EnterHeld(ctx, rules, 0)
}

// EnterHeld is Enter for one that is held back for most at the most, and comes before those
// that may be held back for longer. Where none is held back the order is all there is to it.
func (q *Queue) EnterHeld(ctx context.Context, rules Rules, most time.Duration) error {
	q.mu.Lock()
	q.rules = rules
	turn := make(chan struct{})
	ahead, _ := ctx.Value(aheadKey{}).(time.Duration)
	e := q.insert(waiter{turn, q.clock.Now().Add(most - ahead)})
	q.admit()
	q.mu.Unlock()
	if q.wait(ctx, turn) {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-turn: // it came at the same moment: pass it on
		q.running--
		q.admit()
	default:
		q.waiting.Remove(e)
	}
	return ctx.Err()
}

func (q *Queue) insert(w waiter) *list.Element {
	for e := q.waiting.Back(); e != nil; e = e.Prev() {
		if !e.Value.(waiter).until.After(w.until) {
			return q.waiting.InsertAfter(w, e)
		}
	}
	return q.waiting.PushFront(w)
}

// wait reports whether the turn came before ctx ended.
func (q *Queue) wait(ctx context.Context, turn <-chan struct{}) bool {
	tell, ok := ctx.Value(tellKey{}).(func(waiting bool))
	if ok {
		timer := q.clock.NewTimer(noticeable)
		defer timer.Stop()
		select {
		case <-turn:
			return true
		case <-ctx.Done():
			return false
		case <-timer.C():
		}
		tell(true)
		defer tell(false)
	}
	select {
	case <-turn:
		return true
	case <-ctx.Done():
		return false
	}
}

// Leave ends a turn.
func (q *Queue) Leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	q.admit()
}

// Load is how many have their turn, and how many wait for it.
func (q *Queue) Load() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running, q.waiting.Len()
}

// never is the delay of one that waits for the end of another.
const never = time.Duration(-1)

// admit starts those that may begin, and is called again when the next one may for having
// waited.
func (q *Queue) admit() {
	delay := never
	for q.waiting.Len() > 0 {
		if delay = q.delay(); delay != 0 {
			break
		}
		close(q.waiting.Remove(q.waiting.Front()).(waiter).turn)
		q.running++
		q.last = q.clock.Now()
	}
	if q.waiting.Len() == 0 || delay == never || q.lender != nil {
		return
	}
	// In a goroutine: a stepped clock calls back while it is held.
	q.lender = q.clock.AfterFunc(delay, func() { go q.lend() })
}

func (q *Queue) lend() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lender = nil
	q.admit()
}

// delay is how long the first that waits has to wait though none ends.
func (q *Queue) delay() time.Duration {
	var delay time.Duration
	if q.rules.Limit > 0 && q.running >= q.rules.Limit {
		patience := q.rules.Patience
		if q.spare != nil && q.spare() {
			patience = q.rules.Spare
		}
		if patience == 0 {
			return never
		}
		delay = max(patience-q.clock.Since(q.last), 0)
	}
	if q.hold == nil {
		return delay
	}
	left := q.waiting.Front().Value.(waiter).until.Sub(q.clock.Now())
	return max(delay, min(q.hold(), left))
}
