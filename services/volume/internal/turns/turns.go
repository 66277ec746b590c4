// SPDX-License-Identifier: Apache-2.0

// Package turns is locks by name: one at a time for a volume, whatever others wait for.
package turns

import (
	"context"
	"sync"
)

// Turns are locks by name. Unlike hashed ones, no name ever waits for another.
type Turns struct {
	mu  sync.Mutex
	all map[string]*turn
}

type turn struct {
	held   chan struct{} // capacity 1
	wanted int           // by how many; guarded by Turns.mu
}

// Take waits for a name's turn and returns what ends it. Nothing is taken when ctx ends
// first.
func (t *Turns) Take(ctx context.Context, name string) (end func(), err error) {
	it := t.want(name)
	select {
	case it.held <- struct{}{}:
	case <-ctx.Done():
		t.leave(name, it)
		return nil, ctx.Err()
	}
	end = func() {
		<-it.held
		t.leave(name, it)
	}
	if err := ctx.Err(); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func (t *Turns) want(name string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]*turn{}
	}
	it := t.all[name]
	if it == nil {
		it = &turn{held: make(chan struct{}, 1)}
		t.all[name] = it
	}
	it.wanted++
	return it
}

func (t *Turns) leave(name string, it *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if it.wanted--; it.wanted == 0 {
		delete(t.all, name)
	}
}
