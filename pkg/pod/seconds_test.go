// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"math"
	"testing"
	"time"
)

func TestSeconds(t *testing.T) {
	for n, want := range map[int64]time.Duration{0: 0, 30: 30 * time.Second, -1: -time.Second, math.MaxInt32: math.MaxInt32 * time.Second} {
		if got := Seconds(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for _, n := range []int64{9_300_000_000, math.MaxInt64 / 1000, math.MaxInt64} {
		if got := Seconds(n); got < 70*365*24*time.Hour || got*3/2 < got || got+got < got {
			t.Errorf("%d: %s", n, got)
		}
		if got := Seconds(-n); got > -70*365*24*time.Hour {
			t.Errorf("%d: %s", -n, got)
		}
	}
}
