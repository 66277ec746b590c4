// SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"
	"time"
)

// TestLimit: kills give time, but not for ever.
func TestLimit(t *testing.T) {
	began := time.Unix(1000, 0)
	for _, c := range []struct{ kill, want time.Duration }{
		{-time.Minute, Patience}, {time.Minute, time.Minute + Patience}, {9 * time.Minute, underKills}, {time.Hour, underKills},
	} {
		if got := limitOf(began, began.Add(c.kill)).Sub(began); got != c.want {
			t.Errorf("killed after %s: %s, want %s", c.kill, got, c.want)
		}
	}
}
