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
// a start waits for them. How long they wait at the most is step's to say.
const calmAfter = time.Second

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

// newCalm makes one that delays removals until nothing has started or ended for after.
func newCalm(c clock.WithDelayedExecution, after time.Duration) *calm {
	k := &calm{clock: c}
	k.queue = queue.NewHeld(c, func() time.Duration {
		k.mu.Lock()
		defer k.mu.Unlock()
		return max(after-k.clock.Since(k.last), 0)
	})
	return k
}

// stir notes that something starts or ends.
func (k *calm) stir() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = k.clock.Now()
}

// later is an act that waits until the node is calm, or until a time.
func (k *calm) later(do act, until time.Time) act {
	return func(ctx context.Context) (outcome, error) {
		if err := k.queue.EnterHeld(ctx, removals, until.Sub(k.clock.Now())); err != nil {
			return outcome{}, err
		}
		defer k.queue.Leave()
		return do(ctx)
	}
}
