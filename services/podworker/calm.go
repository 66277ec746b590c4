// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/services/podworker/internal/queue"
)

// The containers and sandboxes of pods that are gone are removed once no container or sandbox
// has started or ended on the node for calmAfter: while a runtime removes a hundred sandboxes,
// a start waits for them. They are removed after calmAtMost in any case, the period in which
// a kubelet collects containers.
const (
	calmAfter  = time.Second
	calmAtMost = time.Minute
)

// removals bounds how many are under way at a time. One that hangs delays the next by the
// patience at most.
var removals = queue.Rules{Limit: removalsAtOnce, Patience: 5 * time.Second}

const removalsAtOnce = 4

// calm knows when something last started or ended, and delays removals. Safe for concurrent
// use.
type calm struct {
	clock clock.PassiveClock
	queue *queue.Queue

	mu   sync.Mutex
	last time.Time
}

// newCalm makes one that delays removals until nothing has started or ended for after, by
// most at the most.
func newCalm(c clock.WithDelayedExecution, after, most time.Duration) *calm {
	k := &calm{clock: c}
	k.queue = queue.NewHeld(c, func() time.Duration {
		k.mu.Lock()
		defer k.mu.Unlock()
		return max(after-k.clock.Since(k.last), 0)
	}, most)
	return k
}

// stir notes that something starts or ends.
func (k *calm) stir() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = k.clock.Now()
}

// later is an act that waits until the node is calm.
func (k *calm) later(do act) act {
	return func(ctx context.Context) (outcome, error) {
		if err := k.queue.Enter(ctx, removals); err != nil {
			return outcome{}, err
		}
		defer k.queue.Leave()
		return do(ctx)
	}
}
