package csi

import "sync"

// turns are locks by name. Unlike hashed ones, no name ever waits for another.
type turns struct {
	mu  sync.Mutex
	all map[string]*turn
}

type turn struct {
	sync.Mutex
	wanted int // by how many; guarded by turns.mu
}

// take waits for a name's turn and returns what ends it.
func (t *turns) take(name string) (end func()) {
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
