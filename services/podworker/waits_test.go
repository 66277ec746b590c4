// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
)

// Bounds of a wait in a test. What is to happen at once, or within patience of the
// node's clock, has realLimit of real time for it: the machine may be slow.
const (
	patience  = 2 * time.Minute
	realLimit = 2 * time.Minute
	// quiet is how long nothing has happened before the clock is moved.
	quiet = time.Millisecond
	// stuck is how long a call to a stand-in may be under way before it counts as
	// one that waits for the clock.
	stuck = 200 * time.Millisecond
	// slowest is how long nothing is seen of work that is under way, as a write to a
	// disk that is busy: a node at which nothing happens for so long waits for its clock.
	slowest = 10 * time.Second
)

// calls counts the calls to stand-ins that are under way.
type calls struct {
	mu      sync.Mutex
	running int
	since   time.Time // when one last began or ended
}

// begin counts a call; what it returns ends it.
func (c *calls) begin() (end func()) {
	c.add(1)
	return func() { c.add(-1) }
}

func (c *calls) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running += n
	c.since = time.Now()
}

// idle reports whether none is under way but those that wait for the clock.
func (c *calls) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running == 0 || time.Since(c.since) > stuck
}

// until waits for a condition, looked at again after every change anywhere. The
// clock stands still.
func (n *node) until(what string, cond func() bool) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), realLimit)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond) // metrics change without a word
	defer look.Stop()
	for {
		next, changed := n.wire.next(), n.rt.Changed()
		if cond() {
			return
		}
		select {
		case <-next:
		case <-changed:
		case <-look.C:
		case <-ctx.Done():
			n.t.Fatalf("waited for %s\n%s", what, n.dump())
		}
	}
}

// pass lets time go by, a step whenever nothing happens any more, until a condition
// holds. It must within patience of the node's clock: what is still waited for then,
// no fact of the node has woken.
func (n *node) pass(what string, step time.Duration, cond func() bool) {
	n.t.Helper()
	n.within(what, step, patience, cond)
}

// within is pass for what may take another time of the node's clock.
func (n *node) within(what string, step, most time.Duration, cond func() bool) {
	n.t.Helper()
	began, limit := n.clock.Now(), time.After(realLimit)
	for {
		if n.settles(quiet, cond) {
			return
		}
		passed := n.clock.Since(began)
		if passed+step > most {
			break
		}
		// Towards the end, and when steps are few, the node gets more real time for
		// each: a slow machine must not look like a node that has forgotten something.
		slower := max(math.Pow(64, float64(passed)/float64(most)), 200*float64(step)/float64(most))
		if n.settles(time.Duration(float64(quiet)*slower), cond) {
			return
		}
		n.clock.Step(step)
		select {
		case <-limit:
			n.t.Fatalf("waited %s for %s, of which %s on the node's clock\n%s", realLimit, what, n.clock.Since(began), n.dump())
		default:
		}
	}
	if !n.settles(slowest, cond) {
		n.t.Fatalf("waited for %s: not within %s of the node's clock\n%s", what, most, n.dump())
	}
}

// settles waits until nothing has happened for a while, and reports whether the
// condition holds.
func (n *node) settles(idle time.Duration, cond func() bool) bool {
	for {
		next, changed := n.wire.next(), n.rt.Changed()
		if cond() {
			return true
		}
		look := time.NewTimer(idle)
		select {
		case <-next:
		case <-changed:
		case <-look.C:
			if n.calls.idle() {
				return false
			}
		}
		look.Stop()
	}
}

// rest waits until nothing happens any more.
func (n *node) rest() { n.settles(20*time.Millisecond, func() bool { return false }) }

func (n *node) dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %s\n", n.clock.Now().Format(time.TimeOnly))
	for _, key := range n.states.Keys() {
		if s, ok := n.states.Get(key); ok { // it may have been deleted since
			s.Pod = nil
			fmt.Fprintf(&b, "%s: %v\n", key, s)
		}
	}
	for _, s := range n.rt.Sandboxes() {
		fmt.Fprintf(&b, "sandbox %s %s/%d %s\n", s.GetId(), s.GetMetadata().GetName(), s.GetMetadata().GetAttempt(), s.GetState())
	}
	for _, c := range n.rt.Containers() {
		fmt.Fprintf(&b, "container %s %s/%d %s exit %d\n", c.GetId(), c.GetMetadata().GetName(), c.GetMetadata().GetAttempt(), c.GetState(), c.GetExitCode())
	}
	for _, e := range n.told() {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}
