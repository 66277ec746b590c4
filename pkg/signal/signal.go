// SPDX-License-Identifier: Apache-2.0

// Package signal wakes a goroutine whose work depends on state that it reads by itself: a
// signal says "look", never what changed, so a repeated one costs one more look and
// changes nothing.
//
// A Signal is made before those that send it and the goroutine that receives it, so that
// each of them is complete when it is made. A queue of keys (client-go's workqueue) is for
// items that are handled one by one and tried again one by one; the loops here handle
// everything that is due in one pass.
package signal

import "sync"

// Signal wakes one goroutine, which receives from it. Several sends before it receives are
// one.
type Signal chan struct{}

// New makes a signal that has not been sent.
func New() Signal { return make(Signal, 1) }

// Send wakes the receiver. It never blocks, and is safe for concurrent use.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Pending reports whether it was sent since the receiver last received.
func (s Signal) Pending() bool { return len(s) > 0 }

// Keys are what has to be looked at, by key, and the signal that wakes the loop that does.
// Safe for concurrent use.
type Keys struct {
	// Wake is received from by the loop.
	Wake Signal

	mu     sync.Mutex
	marked map[string]bool
}

// NewKeys makes an empty set.
func NewKeys() *Keys { return &Keys{Wake: New(), marked: map[string]bool{}} }

// Mark adds keys and wakes the loop, also without keys.
func (k *Keys) Mark(keys []string) {
	k.Keep(keys...)
	k.Wake.Send()
}

// Keep adds keys without waking the loop, which finds them when it is next awake.
func (k *Keys) Keep(keys ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		k.marked[key] = true
	}
}

// Take empties the set. What is marked after it wakes the loop again.
func (k *Keys) Take() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	taken := k.marked
	k.marked = map[string]bool{}
	return taken
}
