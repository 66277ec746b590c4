// SPDX-License-Identifier: Apache-2.0

package backoff_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/signal"
)

func TestAfter(t *testing.T) {
	d := backoff.Doubling{Least: 500 * time.Millisecond, Most: 3 * time.Second}
	for failures, want := range map[int]time.Duration{
		-1: 500 * time.Millisecond, 0: 500 * time.Millisecond, 1: 500 * time.Millisecond,
		2: time.Second, 3: 2 * time.Second, 4: 3 * time.Second, 5: 3 * time.Second, math.MaxInt: 3 * time.Second,
	} {
		if got := d.After(failures); got != want {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
}

// TestJittered: never outside the bounds, and not always the same.
func TestJittered(t *testing.T) {
	d := backoff.Doubling{Least: time.Second, Most: time.Minute}
	seen := map[time.Duration]bool{}
	for range 1000 {
		wait := d.Jittered(3)
		if wait < 2*time.Second || wait >= 6*time.Second {
			t.Fatalf("wait %v, want 4s ± 50%%", wait)
		}
		seen[wait] = true
	}
	if len(seen) == 1 {
		t.Errorf("always the same wait: %v", seen)
	}
}

// TestWork: at the start, at each wake, and again while it fails, with growing waits that a
// success ends.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, wake := backoff.Doubling{Least: time.Second, Most: time.Minute}, signal.New()
		calls, fails, ended := 0, false, make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(ended)
			d.Work(ctx, wake, func(context.Context) bool { calls++; return !fails })
		}()
		after := func(what string, wait time.Duration, least, most int) {
			t.Helper()
			calls = 0
			wake.Send()
			<-time.After(wait)
			synctest.Wait()
			if calls < least || calls > most {
				t.Errorf("%s: %d calls in %v, want %d to %d", what, calls, wait, least, most)
			}
		}
		synctest.Wait()
		if calls != 1 {
			t.Errorf("%d calls at the start", calls)
		}
		after("woken", time.Hour, 1, 1)
		fails = true
		after("failing", time.Hour, 40, 140)
		fails = false
		after("mended", time.Hour, 1, 2)
		fails = true
		after("failing again", 2*time.Second, 2, 4)
		cancel()
		<-ended
	})
}
