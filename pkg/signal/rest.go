// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"context"
	"iter"
	"time"
)

const (
	// mostRest bounds a rest: how late a change is seen that comes right after a pass.
	mostRest = 20 * time.Millisecond
	// window is for how long keys are remembered, at the least; twice that at the most.
	window = 200 * time.Millisecond
	// crowd is how many keys that have changed within a window or two are a crowd.
	crowd = 8
	// crowdRest is a rest in a crowd.
	crowdRest = 60 * time.Millisecond
)

// Rest lets changes gather after a pass that began then: it returns after as long again, 20
// ms at most, or when ctx ends. A pass over everything that changed takes longer the more
// there is to do, also for others on the node, and then one pass serves more changes; a loop
// that rests is at work half of the time at most. Alone, a pass and its rest are over before
// the next change comes.
func Rest(ctx context.Context, began time.Time) {
	sleep(ctx, rest(time.Since(began)))
}

func rest(worked time.Duration) time.Duration { return min(worked, mostRest) }

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Pace is how a loop rests that knows which keys a pass was about. Pods that come or go
// alone are seen to at once. Where many do, each waits for the runtime and the processors far
// longer than for a pass, and a pass for each change takes the processors from all of them.
// The zero value is ready. It is for one goroutine.
type Pace struct {
	began     time.Time       // of the window
	now, then map[string]bool // the keys of the window, and of the one before
}

// Rest is the function Rest after a pass over keys; in a crowd it rests for 60 ms.
func (p *Pace) Rest(ctx context.Context, began time.Time, keys iter.Seq[string]) {
	ended := time.Now()
	sleep(ctx, p.rest(began, ended, keys))
}

// rest is for how long to rest after a pass.
func (p *Pace) rest(began, ended time.Time, keys iter.Seq[string]) time.Duration {
	if age := ended.Sub(p.began); age >= window {
		p.then = p.now
		if age >= 2*window {
			p.then = nil
		}
		p.began, p.now = ended, map[string]bool{}
	}
	for key := range keys {
		p.now[key] = true
	}
	if p.distinct() >= crowd {
		return crowdRest
	}
	return rest(ended.Sub(began))
}

// distinct is how many keys are remembered.
func (p *Pace) distinct() int {
	n := len(p.now)
	for key := range p.then {
		if !p.now[key] {
			n++
		}
	}
	return n
}
