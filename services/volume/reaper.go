// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"sync"
	"time"

	"github.com/sextant-node/sextant/pkg/signal"
)

// reaper lets go of the volumes that are on the node for no pod, and tries again those that
// cannot be let go of: a volume that is staged is in use, and is attached to no other node.
// Each has a goroutine of its own, so that one that hangs holds up no other.
type reaper struct {
	node *nodeItem

	mu  sync.Mutex
	all map[string]*reaping
}

// reaping is what is done about one volume. Guarded by reaper.mu, but for wake.
type reaping struct {
	again bool // it has been left since the last try began
	wake  signal.Signal
}

// look begins with those that are left now. Others wait for their next try; with now, they
// are tried at once.
func (r *reaper) look(ctx context.Context, now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, reap := range r.node.plugins.Left() {
		it := r.all[name]
		switch {
		case it == nil:
			it = &reaping{wake: signal.New()}
			r.all[name] = it
			r.node.pods.background(func() { r.run(ctx, name, it, reap) })
		case now:
			it.wake.Send()
		}
		it.again = true
	}
}

// run tries until there is nothing to let go of.
func (r *reaper) run(ctx context.Context, name string, it *reaping, reap func(context.Context) error) {
	for failures := 0; r.begins(name, it); {
		err := toolError(reap(context.Background())) // an end of this service cuts nothing short
		r.node.publish(ctx)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		r.node.log.Warn("a volume that no pod uses is staged still", "volume", name, "error", err.Error())
		r.mu.Lock()
		it.again = true
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-it.wake:
		case <-time.After(retries.Jittered(failures)):
		}
	}
}

// begins reports whether there is another try.
func (r *reaper) begins(name string, it *reaping) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !it.again {
		delete(r.all, name)
		return false
	}
	it.again = false
	return true
}
