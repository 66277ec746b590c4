// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/services/podworker/internal/queue"
)

// What pods that are gone have left in the runtime is removed once nothing has started or
// ended on the node for calmAfter, for somebody waits for that: a runtime that removes a
// hundred sandboxes has the next start wait behind them. calmAtMost later, the period in
// which a kubelet collects containers, it is removed in any case.
const (
	calmAfter  = time.Second
	calmAtMost = time.Minute
)

// removalsAtOnce is how many of those removals are under way at a time; one that hangs holds
// the next up for no longer than the patience.
var removals = queue.Rules{Limit: removalsAtOnce, Patience: 5 * time.Second}

const removalsAtOnce = 4

// calm knows when something last started or ended, and has removals wait. Safe for
// concurrent use.
type calm struct {
	clock clock.PassiveClock
	queue *queue.Queue

	mu   sync.Mutex
	last time.Time
}

// newCalm makes one that holds removals back until nothing has happened for after, and for
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

// later has an act wait for its turn.
func (k *calm) later(do act) act {
	return func(ctx context.Context) (outcome, error) {
		if err := k.queue.Enter(ctx, removals); err != nil {
			return outcome{}, err
		}
		defer k.queue.Leave()
		return do(ctx)
	}
}
