// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// The pause between two looks grows from the first to the last: what is quick is
// seen at once, and what is slow is not slowed down by looking.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 160 * time.Millisecond
)

// pauses yields a channel for the next pause each time it is called.
func pauses() func() <-chan time.Time {
	next := firstPause
	return func() <-chan time.Time {
		c := time.After(next)
		next = min(next*3/2, lastPause)
		return c
	}
}

// Eventually calls check until it returns nil, and fails the test with the last
// error when it has not within the time allowed. what completes "waiting for".
// check gets a context that ends with the time.
func Eventually(t testing.TB, limit time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	if err := eventually(t.Context(), limit, check); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// Within is Eventually for where the failure is part of the answer.
func Within(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	return eventually(ctx, limit, check)
}

// Consistently calls check for as long as told and fails the test with the
// first error. It is for what must not happen.
func Consistently(t testing.TB, span time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	pause := pauses()
	for {
		if err := check(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-pause():
		}
	}
}

// Rest is for where time itself is what is tested: how long something is away.
func Rest(t testing.TB, d time.Duration) {
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

func eventually(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pause := pauses()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		// The last look of a test that ran out of time says nothing but that.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", time.Since(start).Round(time.Millisecond), last)
		case <-pause():
		}
	}
}
