// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestThePause lasts until what is due: a round at the end of it does all of that, however
// late the rounds before were and whatever woke the loop in between, so that thresholds are
// looked at each period, not each second one.
func TestThePause(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var evictions, searches time.Time
	for range 10_000 {
		at := now.Add(time.Duration(random.Int64N(int64(50 * time.Millisecond)))) // the round begins late
		if late := at.Sub(evictions); !evictions.IsZero() && late >= 100*time.Millisecond {
			t.Fatalf("a pass %s after it was due", late)
		}
		if !at.Before(evictions) {
			evictions = at.Add(period)
		}
		if !at.Before(searches) {
			searches = at.Add(period)
		}
		now = at.Add(time.Duration(random.Int64N(int64(50 * time.Millisecond)))) // and takes a while
		wait := pause(now, evictions, searches, time.Time{})
		if wait > period {
			t.Fatalf("the loop waits for %s", wait)
		}
		if random.IntN(3) == 0 { // something wakes it
			wait = time.Duration(random.Int64N(int64(wait) + 1))
		}
		now = now.Add(wait)
	}
}
