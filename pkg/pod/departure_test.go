// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"math"
	"testing"
	"time"
)

func TestDeparture(t *testing.T) {
	for grace, want := range map[int64]string{0: "40s", 1: "40s", 6: "40s", 7: "40.5s", 8: "42s", 120: "3m30s"} {
		if got := Departure(Seconds(grace)).String(); got != want {
			t.Errorf("grace %d s: %s, want %s", grace, got, want)
		}
	}
	if got := Departure(Seconds(math.MaxInt64)); got < 70*365*24*time.Hour {
		t.Errorf("a grace without end: %s", got)
	}
}
