// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// rig notes who has had a turn.
type rig struct {
	*Queue
	mu    sync.Mutex
	begun []string
}

func (r *rig) enter(t *testing.T, rules Rules, name string) {
	t.Helper()
	r.begin(t, name, func() error { return r.Enter(context.Background(), rules) })
}

// begin has one wait for its turn.
func (r *rig) begin(t *testing.T, name string, enter func() error) {
	t.Helper()
	go func() {
		if err := enter(); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.begun = append(r.begun, name)
	}()
	synctest.Wait()
}

func (r *rig) want(t *testing.T, names ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.begun, names) {
		t.Errorf("%v have had their turn, want %v", r.begun, names)
	}
}

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, rules := &rig{Queue: New(clock.RealClock{})}, Rules{Limit: 2}
		for _, name := range []string{"a", "b", "c", "d"} {
			r.enter(t, rules, name)
		}
		r.want(t, "a", "b")
		if running, waiting := r.Load(); running != 2 || waiting != 2 {
			t.Errorf("%d run and %d wait", running, waiting)
		}
		r.Leave()
		r.want(t, "a", "b", "c")
		r.Leave()
		r.want(t, "a", "b", "c", "d")
		r.Leave()
		r.Leave()
		if running, waiting := r.Load(); running != 0 || waiting != 0 {
			t.Errorf("%d run and %d wait in the end", running, waiting)
		}
	})
}

func TestNobodyWaitsForTheStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, rules := &rig{Queue: New(clock.RealClock{})}, Rules{Limit: 1, Patience: time.Second}
		r.enter(t, rules, "stuck")
		r.enter(t, rules, "a")
		r.enter(t, rules, "b")
		<-time.After(999 * time.Millisecond)
		r.want(t, "stuck")
		<-time.After(time.Millisecond)
		r.want(t, "stuck", "a")
		<-time.After(time.Second)
		r.want(t, "stuck", "a", "b")
		r.Leave()
		r.Leave()
		r.enter(t, rules, "c") // one is stuck still
		r.want(t, "stuck", "a", "b")
		<-time.After(time.Second)
		r.want(t, "stuck", "a", "b", "c")
	})
}

func TestWhoLeavesTheQueueIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, rules := &rig{Queue: New(clock.RealClock{})}, Rules{Limit: 1}
		r.enter(t, rules, "a")
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { gone <- r.Enter(ctx, rules) }()
		synctest.Wait()
		r.enter(t, rules, "b")
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		r.Leave()
		r.want(t, "a", "b")
	})
}

func TestALongWaitIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, rules := &rig{Queue: New(clock.RealClock{})}, Rules{Limit: 1}
		r.enter(t, rules, "a")
		var told []bool
		ctx := Tell(t.Context(), func(waiting bool) { told = append(told, waiting) })
		var entered error
		enter := func(ctx context.Context) { go func() { entered = r.Enter(ctx, rules) }() }
		after := func(d time.Duration, want ...bool) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			if !slices.Equal(told, want) {
				t.Errorf("told %v, want %v", told, want)
			}
		}
		enter(ctx)
		after(999 * time.Millisecond)
		r.Leave() // soon enough
		after(time.Minute)
		enter(ctx)
		after(time.Second, true)
		r.Leave()
		after(0, true, false)
		leaving, leave := context.WithCancel(ctx)
		enter(leaving)
		after(time.Second, true, false, true)
		leave()
		after(0, true, false, true, false)
		if !errors.Is(entered, context.Canceled) {
			t.Errorf("error %v", entered)
		}
	})
}

// TestHeldBack: none begins while it is held back, none is held back for longer than it may
// be, and who may be for less comes first.
func TestHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := Rules{Limit: 1}
		var hold atomic.Int64
		hold.Store(int64(time.Second))
		r := &rig{Queue: NewHeld(clock.RealClock{}, func() time.Duration { return time.Duration(hold.Load()) })}
		held := func(most time.Duration, name string) {
			t.Helper()
			r.begin(t, name, func() error { return r.EnterHeld(t.Context(), rules, most) })
		}
		held(time.Minute, "a")
		<-time.After(10 * time.Second)
		r.want(t)
		held(time.Minute, "b")
		held(-time.Hour, "overdue")
		r.want(t, "overdue")
		r.Leave()
		<-time.After(50*time.Second - 1)
		r.want(t, "overdue")
		<-time.After(1)
		r.want(t, "overdue", "a")
		r.Leave()
		r.want(t, "overdue", "a") // b has waited for less
		hold.Store(0)
		<-time.After(time.Second)
		r.want(t, "overdue", "a", "b")
		held(time.Minute, "c")
		r.want(t, "overdue", "a", "b")
		r.Leave()
		r.want(t, "overdue", "a", "b", "c")
	})
}

// TestAhead: one that goes ahead comes before those that came earlier, but for those that came
// earlier by more than it may.
func TestAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := Rules{Limit: 1}
		r := &rig{Queue: New(clock.RealClock{})}
		ahead := func(by time.Duration, name string) {
			t.Helper()
			r.begin(t, name, func() error { return r.Enter(Ahead(t.Context(), by), rules) })
		}
		r.enter(t, rules, "running")
		r.enter(t, rules, "old")
		<-time.After(time.Minute)
		r.enter(t, rules, "new")
		<-time.After(time.Second)
		ahead(30*time.Second, "b")
		ahead(30*time.Second, "c")
		ahead(time.Hour, "a")
		for range 5 {
			r.Leave()
			synctest.Wait()
		}
		r.want(t, "running", "a", "old", "b", "c", "new")
	})
}

// TestProcessorsToSpare: the patience depends on whether the machine has some.
func TestProcessorsToSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := Rules{Limit: 1, Patience: time.Second, Spare: 10 * time.Millisecond}
		var spare atomic.Bool
		r := &rig{Queue: NewSparing(clock.RealClock{}, spare.Load)}
		for _, name := range []string{"a", "b", "c", "d"} {
			r.enter(t, rules, name)
		}
		<-time.After(time.Second - 1)
		r.want(t, "a")
		spare.Store(true)
		<-time.After(1)
		r.want(t, "a", "b")
		<-time.After(10 * time.Millisecond)
		r.want(t, "a", "b", "c")
		spare.Store(false)
		<-time.After(10 * time.Millisecond) // until it is asked again
		r.want(t, "a", "b", "c")
		<-time.After(time.Second)
		r.want(t, "a", "b", "c", "d")
	})
}
