// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/signal"
)

// retryPeriod is how soon the disk is tried again after a failure.
const retryPeriod = time.Second

// mostSleep is the longest sleep until a time: a clock that is set wakes nobody.
const mostSleep = time.Minute

// mailbox wakes one goroutine and hands it functions to run. Safe for concurrent use.
type mailbox struct {
	wake signal.Signal

	mu     sync.Mutex
	posted []func()
}

func newMailbox() *mailbox { return &mailbox{wake: signal.New()} }

// poke wakes the goroutine; several pokes before it wakes are one.
func (m *mailbox) poke() {
	m.wake.Send()
}

// poked reports whether the goroutine was woken since it last began a round.
func (m *mailbox) poked() bool { return m.wake.Pending() }

// post has f run in the goroutine.
func (m *mailbox) post(f func()) {
	m.mu.Lock()
	m.posted = append(m.posted, f)
	m.mu.Unlock()
	m.poke()
}

// each runs what was posted and then round: when poked, and at the time that the last
// round asked for (zero for none), or before. It returns when ctx ends or a round is the last.
func (m *mailbox) each(ctx context.Context, clock clock.WithTicker, round func() (at time.Time, last bool)) {
	timer := clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-timer.C():
		}
		for _, f := range m.take() {
			f()
		}
		at, last := round()
		if last {
			return
		}
		wait := time.Hour
		if !at.IsZero() {
			wait = min(max(at.Sub(clock.Now()), 0), mostSleep)
		}
		if !timer.Stop() {
			select {
			case <-timer.C():
			default:
			}
		}
		timer.Reset(wait)
		if !at.IsZero() && !clock.Now().Before(at) {
			m.poke() // the time came while the timer was being set
		}
	}
}

// take empties the box.
func (m *mailbox) take() []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	posted := m.posted
	m.posted = nil
	return posted
}
