// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"
	"time"
	"unsafe"
)

// clockSet is a reading of the clock as it would have been had the clock been set by so many
// seconds before: its time of day is another, its monotonic part the same.
func clockSet(now time.Time, seconds int64) time.Time {
	wall := (*uint64)(unsafe.Pointer(&now)) // seconds above 30 bits of nanoseconds
	*wall += uint64(seconds << 30)
	return now
}

// TestTheWatchdogWhenTheClockIsSet: a loop that beat a moment ago is not stuck because the
// clock was set forward, and one that has not for long is though it was set back.
func TestTheWatchdogWhenTheClockIsSet(t *testing.T) {
	const hour = 3600
	if now := time.Now(); clockSet(now, hour).Round(0) != now.Round(0).Add(hour*time.Second) || clockSet(now, hour).Sub(now) != 0 {
		t.Fatal("time.Time is not what it was")
	}
	k := &Kit{}
	beat := k.Heart("loop", time.Minute)
	beat()
	if names := k.hearts.stuck(clockSet(time.Now(), hour)); len(names) > 0 {
		t.Errorf("set forward: %v", names)
	}
	if names := k.hearts.stuck(clockSet(time.Now().Add(2*time.Minute), -hour)); len(names) == 0 {
		t.Error("set back: a loop that has not beaten for two minutes is not stuck")
	}
}
