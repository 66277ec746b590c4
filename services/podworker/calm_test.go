// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// TestRemovalsWaitForCalm: they begin a second after the last start or end, some at a
// time, and at the latest when they are told to.
func TestRemovalsWaitForCalm(t *testing.T) {
	for _, test := range []struct {
		name string
		// busy is for how long something starts each half second, begun how long after the
		// first moment how many removals have begun.
		busy  time.Duration
		begun map[time.Duration]int
	}{
		{"quiet", 0, map[time.Duration]int{0: removalsAtOnce}},
		{"a start", 1, map[time.Duration]int{time.Second - 1: 0, time.Second: removalsAtOnce}},
		{"ten seconds", 10 * time.Second, map[time.Duration]int{10*time.Second + 499*time.Millisecond: 0, 10*time.Second + 501*time.Millisecond: removalsAtOnce}},
		{"never calm", time.Hour, map[time.Duration]int{time.Minute - 1: 0, time.Minute: removalsAtOnce}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for after, want := range test.begun {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					k, first := newCalm(clock.RealClock{}, calmAfter), time.Now()
					var begun atomic.Int32
					if test.busy > 0 {
						k.stir()
						go func() {
							for ctx.Err() == nil && time.Since(first) < test.busy {
								k.stir()
								select {
								case <-time.After(500 * time.Millisecond):
								case <-ctx.Done():
								}
							}
						}()
					}
					removal := k.later(func(ctx context.Context) (outcome, error) {
						begun.Add(1)
						<-ctx.Done()
						return outcome{}, nil
					}, first.Add(time.Minute))
					for range 2 * removalsAtOnce {
						go removal(ctx) //nolint:errcheck // its end is not what is tested
					}
					<-time.After(after)
					synctest.Wait()
					if n := int(begun.Load()); n != want {
						t.Errorf("%d removals have begun after %s, want %d", n, after, want)
					}
					cancel()
				})
			}
		})
	}
}

// TestWhatIsLeftOfAPodWaitsForCalm: while another pod starts, what a pod that is gone has
// left is not removed; it is a second after that.
func TestWhatIsLeftOfAPodWaitsForCalm(t *testing.T) {
	n := newNode(t)
	n.calm = calmAfter
	n.live()
	gone := web("gone")
	n.desire(gone)
	n.until("it runs", func() bool { return n.running("gone") && n.settled(gone.UID) })
	n.forget(gone.UID)
	waits := func() bool {
		_, waiting := n.loop.calm.queue.Load()
		return waiting == 1
	}
	n.until("it has ended", func() bool { return n.released(gone.UID) && waits() })
	other := web("other")
	n.clock.Step(calmAfter - 1)
	n.desire(other)
	n.until("another runs", func() bool { return n.running("other") && n.settled(other.UID) })
	n.clock.Step(1)
	if n.settles(quiet, func() bool { return !waits() }) {
		t.Fatal("what is left is removed though a pod has just started")
	}
	n.clock.Step(calmAfter)
	n.until("its container is removed", func() bool { return len(n.rt.Containers()) == 1 })
	n.pass("its sandbox is removed", calmAfter, func() bool { return len(n.rt.Sandboxes()) == 1 && n.state(gone.UID) == nil })
}
