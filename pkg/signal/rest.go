// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"context"
	"time"
)

// mostRest bounds a rest: how late a change is seen that comes right after a pass.
const mostRest = 20 * time.Millisecond

// Rest lets changes gather after a pass that began then: it returns after as long again, 20
// ms at most, or when ctx ends. A pass over everything that changed takes longer the more
// there is to do, also for others on the node, and then one pass serves more changes; a loop
// that rests is at work half of the time at most. Alone, a pass and its rest are over before
// the next change comes.
func Rest(ctx context.Context, began time.Time) {
	timer := time.NewTimer(min(time.Since(began), mostRest))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
