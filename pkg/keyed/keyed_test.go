// SPDX-License-Identifier: Apache-2.0

package keyed_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sextant-node/sextant/pkg/keyed"
)

// TestAKeyHasSoManyPlaces: whoever comes when they are taken waits, others are not held up, and
// what has left or has stopped waiting leaves nothing behind.
func TestAKeyHasSoManyPlaces(t *testing.T) {
	ctx := t.Context()
	limit := keyed.NewLimit(2)
	enter := func(key string) func() {
		t.Helper()
		leave, err := limit.Enter(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	first, second := enter("a"), enter("a")
	other := enter("b")
	given, stop := context.WithCancel(ctx)
	stop()
	if _, err := limit.Enter(given, "a"); !errors.Is(err, context.Canceled) {
		t.Fatalf("a third entered: %v", err)
	}
	for range 100 { // of a place that is free, too
		if _, err := limit.Enter(given, "c"); !errors.Is(err, context.Canceled) {
			t.Fatalf("one whose time is over entered: %v", err)
		}
	}
	third := make(chan func())
	go func() {
		if leave, err := limit.Enter(ctx, "a"); err == nil {
			third <- leave
		}
	}()
	select {
	case <-third:
		t.Fatal("a third entered")
	default:
	}
	first()
	(<-third)()
	second()
	if n := limit.Keys(); n != 1 {
		t.Errorf("%d keys are kept, want b alone", n)
	}
	other()
	if n := limit.Keys(); n != 0 {
		t.Errorf("%d keys are kept", n)
	}
}

// TestNeverMoreThanAllowed: many come to a few keys, and some give up.
func TestNeverMoreThanAllowed(t *testing.T) {
	const most, keys = 3, 4
	limit := keyed.NewLimit(most)
	var in [keys]atomic.Int32
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 200 {
				ctx, stop := context.WithCancel(t.Context())
				if rand.IntN(4) == 0 {
					stop()
				}
				k := rand.IntN(keys)
				if leave, err := limit.Enter(ctx, strconv.Itoa(k)); err == nil {
					if n := in[k].Add(1); n > most {
						t.Errorf("%d are at key %d", n, k)
					}
					in[k].Add(-1)
					leave()
				}
				stop()
			}
		})
	}
	all.Wait()
	if n := limit.Keys(); n != 0 {
		t.Errorf("%d keys are kept", n)
	}
}
