// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"
)

// pods are the keys of so many pods, from one on.
func pods(from, n int) iter.Seq[string] {
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprint("pod-", from+i))
	}
	return slices.Values(keys)
}

// TestPace: a loop rests as long as it worked, and longer only while many keys change.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	type pass struct {
		at, took time.Duration // when it ends
		keys     iter.Seq[string]
		want     time.Duration
	}
	for name, passes := range map[string][]pass{
		"a pod alone, however often it changes": {
			{0, 2 * ms, pods(0, 1), 2 * ms}, {10 * ms, ms, pods(0, 1), ms}, {20 * ms, 50 * ms, pods(0, 1), 20 * ms},
			{190 * ms, ms, pods(0, 1), ms}, {210 * ms, ms, pods(0, 1), ms},
		},
		"many at once":   {{0, ms, pods(0, 8), 60 * ms}},
		"one by one":     {{0, ms, pods(0, 7), ms}, {100 * ms, ms, pods(7, 1), 60 * ms}, {150 * ms, ms, pods(0, 1), 60 * ms}},
		"in two windows": {{0, ms, pods(0, 4), ms}, {250 * ms, ms, pods(2, 4), ms}, {300 * ms, ms, pods(6, 2), 60 * ms}},
		"five a second":  {{0, ms, pods(0, 3), ms}, {200 * ms, ms, pods(2, 3), ms}, {400 * ms, ms, pods(4, 3), ms}, {600 * ms, ms, pods(6, 3), ms}},
		"then none for a while": {
			{0, ms, pods(0, 100), 60 * ms}, {60 * ms, ms, pods(0, 0), 60 * ms}, {210 * ms, ms, pods(0, 1), 60 * ms}, {420 * ms, ms, pods(0, 1), ms},
		},
		"none for long": {{0, ms, pods(0, 100), 60 * ms}, {time.Hour, ms, pods(0, 1), ms}},
	} {
		t.Run(name, func(t *testing.T) {
			p, start := &Pace{}, time.Unix(1000, 0)
			for _, one := range passes {
				ended := start.Add(one.at)
				if got := p.rest(ended.Add(-one.took), ended, one.keys); got != one.want {
					t.Errorf("after %v: rests for %v, want %v", one.at, got, one.want)
				}
			}
		})
	}
}
