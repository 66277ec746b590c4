package auth

import (
	"sync"
	"time"
)

// cache remembers answers for as long as each is good. It is bounded: when full,
// what has run out is dropped, and then everything.
type cache[V any] struct {
	mu    sync.Mutex
	most  int
	items map[string]cached[V]
}

type cached[V any] struct {
	value V
	until time.Time
}

func newCache[V any](most int) *cache[V] {
	return &cache[V]{most: most, items: map[string]cached[V]{}}
}

func (c *cache[V]) get(key string, now time.Time) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, ok := c.items[key]
	if !ok || !now.Before(item.until) {
		var zero V
		return zero, false
	}
	return item.value, true
}

func (c *cache[V]) put(key string, value V, until time.Time, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.items) >= c.most {
		for k, item := range c.items {
			if !now.Before(item.until) {
				delete(c.items, k)
			}
		}
		if len(c.items) >= c.most {
			clear(c.items)
		}
	}
	c.items[key] = cached[V]{value, until}
}
