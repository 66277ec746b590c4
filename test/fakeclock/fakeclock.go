// SPDX-License-Identifier: Apache-2.0

// Package fakeclock lets fake time go by in tests, and bounds how much: what needs more
// than it should is a fault, and not a matter of waiting longer.
package fakeclock

import (
	"math"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

const (
	// Most is how much fake time Pass lets go by: what the program does within its
	// retries takes less.
	Most = 2 * time.Minute
	// realLimit is for how long a slow machine is waited for.
	realLimit = 2 * time.Minute
	// quiet is the real time before a step at first, and slower times that at last.
	quiet, slower = time.Millisecond, 64
)

// Pass lets fake time go by, a second at a time, until ok answers true, and fails the test
// when that takes more than Most. Time stands still while nothing waits for it.
func Pass(t testing.TB, clock *clocktesting.FakeClock, what string, ok func() bool) {
	t.Helper()
	passed, limit := time.Duration(0), time.Now().Add(realLimit)
	again := time.NewTimer(0)
	defer again.Stop()
	for !ok() {
		switch {
		case time.Now().After(limit):
			t.Fatalf("waited %s for %s, of which %s on the fake clock", realLimit, what, passed)
		case passed < Most && clock.HasWaiters():
			clock.Step(time.Second)
			passed += time.Second
		}
		// Towards the end each step gets more real time: a slow machine must not look
		// like a program that has forgotten something.
		again.Reset(time.Duration(float64(quiet) * math.Pow(slower, float64(passed)/float64(Most))))
		<-again.C
	}
}
