// SPDX-License-Identifier: Apache-2.0

// Package turns is locks by name: one at a time for a volume, whatever others wait for.
package turns

import "sync"

// Turns are locks by name. Unlike hashed ones, no name ever waits for another.
type Turns struct {
	mu  sync.Mutex
	all map[string]*turn
}

type turn struct {
	sync.Mutex
	wanted int // by how many; guarded by Turns.mu
}

// Take waits for a name's turn and returns what ends it.
func (t *Turns) Take(name string) (end func()) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[string]*turn{}
	}
	it := t.all[name]
	if it == nil {
		it = &turn{}
		t.all[name] = it
	}
	it.wanted++
	t.mu.Unlock()
	it.Lock()
	return func() {
		it.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if it.wanted--; it.wanted == 0 {
			delete(t.all, name)
		}
	}
}
