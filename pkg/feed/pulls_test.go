package feed_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

// ear hands announcements to whoever listens.
type ear struct{ look func(feed.Revision) }

func (e *ear) Listen(_ string, look func(feed.Revision)) func() { e.look = look; return func() {} }
func (e *ear) Connected() bool                                  { return true }

// counted counts pulls.
type counted struct {
	feed.Puller
	pulls atomic.Int32
}

func (c *counted) Pull(ctx context.Context, name string, since feed.Revision) (*feedv1.ChangesResponse, error) {
	c.pulls.Add(1)
	return c.Puller.Pull(ctx, name, since)
}

// TestPulls: an announcement of what is known is no reason to pull; one of what
// is not, of another epoch, or of nothing in particular is. Who is in no hurry
// pulls once for several.
func TestPulls(t *testing.T) {
	const settle = 100 * time.Millisecond
	for _, settles := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			owner, e := feed.NewOwner[*plegv1.PodRecord](house.PlegPods, "one", nil), &ear{}
			puller := &counted{Puller: feed.Local{house.PlegPods: owner}}
			cfg := feed.MirrorConfig{Feed: house.PlegPods, Puller: puller, Listener: e}
			if settles {
				cfg.Settle = settle
			}
			m := feed.NewMirror(cfg, feed.Message[*plegv1.PodRecord])
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _ = m.Run(ctx) }() // it never fails
			expect := func(what string, want int32) {
				t.Helper()
				synctest.Wait()
				if got := puller.pulls.Load(); got != want {
					t.Errorf("settling %v: %s: %d pulls, want %d", settles, what, got, want)
				}
			}
			later := func() {
				if settles {
					<-time.After(settle)
				}
			}
			expect("at the start", 1)
			var said []feed.Revision
			for _, name := range []string{"a", "b", "c"} {
				revision, err := owner.Set(ctx, name, &plegv1.PodRecord{Uid: name})
				if err != nil {
					t.Fatal(err)
				}
				said = append(said, revision)
			}
			e.look(said[2])
			e.look(said[0]) // overtaken
			if settles {
				expect("not settled", 1)
			}
			later()
			expect("something new", 2)
			e.look(said[1])
			m.LookFor(said[2])
			later()
			expect("known", 2)
			e.look(feed.Revision{Epoch: "two", N: 1})
			later()
			expect("another epoch", 3)
			e.look(feed.Revision{})
			expect("a reconnect", 4)
			m.Look()
			expect("asked to", 5)
		})
	}
}
