// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"testing"
	"time"
)

// TestAReadingForAnEviction is never one that was made before, however short a time ago: a
// pod that has taken memory since would not be seen, and another would go for it. Others
// share it.
func TestAReadingForAnEviction(t *testing.T) {
	at, read := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 0
	now := func() time.Time { return at }
	next := func(time.Time) int { read++; return read }
	var s shelf[int]
	for i, got := range []int{s.get(now, next), s.get(now, next), s.anew(now, next), s.get(now, next), s.anew(now, next)} {
		if want := []int{1, 1, 2, 2, 3}[i]; got != want {
			t.Errorf("reading %d is the %d. that was made, want the %d.", i, got, want)
		}
	}
}
