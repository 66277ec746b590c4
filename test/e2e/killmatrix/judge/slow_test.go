// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
)

// TestSlow: rounds are compared with undisturbed ones of the same machine.
func TestSlow(t *testing.T) {
	rounds := func(n int, recovery, calm time.Duration) []judge.Round {
		return slices.Repeat([]judge.Round{{Recovery: recovery, Calm: calm}}, n)
	}
	for name, c := range map[string]struct {
		rounds []judge.Round
		want   string
	}{
		"nothing":               {nil, ""},
		"none undisturbed":      {rounds(200, time.Minute, 0), ""},
		"a busy machine":        {rounds(200, 9*time.Second, 9*time.Second), ""},
		"a second later":        {rounds(200, 3*time.Second, 2*time.Second), ""},
		"more than that":        {rounds(200, 3001*time.Millisecond, 2*time.Second), "3.001s (p50)"},
		"few":                   {rounds(20, 6*time.Second, 2*time.Second), ""},
		"some":                  {append(rounds(197, 2*time.Second, 2*time.Second), rounds(3, 5*time.Second, 2*time.Second)...), "5s (p99)"},
		"one far from the rest": {append(rounds(10, 2*time.Second, 2*time.Second), rounds(1, 18*time.Second, 2*time.Second)...), "18s (max)"},
		"a slow machine":        {append(rounds(10, 9*time.Second, 9*time.Second), rounds(1, 45*time.Second, 9*time.Second)...), ""},
		"slower than that":      {append(rounds(10, 9*time.Second, 9*time.Second), rounds(1, 46*time.Second, 9*time.Second)...), "46s (max)"},
		"one not so far":        {append(rounds(10, 2*time.Second, 2*time.Second), rounds(1, 17*time.Second, 2*time.Second)...), ""},
	} {
		found := judge.Slow(c.rounds)
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || found[0].Kind != judge.Late || !strings.Contains(found[0].What, c.want)) {
			t.Errorf("%s: %v, want %q", name, found, c.want)
		}
	}
}
