// SPDX-License-Identifier: Apache-2.0

package feed_test

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/test/feedtest"
)

// ear hands announcements to the replica that listens.
type ear struct {
	look func(feed.Revision)
	deaf bool
}

func (e *ear) Listen(_ string, look func(feed.Revision)) func() { e.look = look; return func() {} }
func (e *ear) Connected() bool                                  { return !e.deaf }

// mouth is an owner's side of the bus: the test announces by itself.
type mouth struct{ dumb bool }

func (m *mouth) Announce(context.Context, string, string, feed.Revision) {}
func (m *mouth) Connected() bool                                         { return !m.dumb }

// counted counts pulls.
type counted struct {
	feed.Puller
	pulls atomic.Int32
}

func (c *counted) Pull(ctx context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error) {
	c.pulls.Add(1)
	return c.Puller.Pull(ctx, req)
}

// TestPulls: an announcement of what is known is no reason to pull; one of what
// is not, of another epoch, or of nothing in particular is. Who is in no hurry
// pulls once for several.
func TestPulls(t *testing.T) {
	const settle = 100 * time.Millisecond
	for _, settles := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			owner, e := feed.NewOwner[*plegv1.PodRecord](house.PlegPods.Name, "one", &mouth{}), &ear{}
			puller := &counted{Puller: feedtest.Local{house.PlegPods.Name: owner}}
			cfg := feed.ReplicaConfig{Feed: house.PlegPods.Name, Puller: puller, Listener: e}
			if settles {
				cfg.Settle = settle
			}
			m := feed.NewReplica(cfg, feed.Decoder(feed.Whole[*plegv1.PodRecord]))
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

// prompt pulls at each announcement.
type prompt struct {
	owner *feed.Owner[*plegv1.PodRecord]
	seen  []string
}

func (*prompt) Connected() bool { return true }

func (p *prompt) Announce(_ context.Context, _, key string, revision feed.Revision) {
	resp := p.owner.Changes(&feedv1.ChangesRequest{Since: feed.Revision{Epoch: revision.Epoch, N: revision.N - 1}.Proto()})
	if feed.RevisionFrom(resp.GetRevision()) != revision || len(resp.GetUpserts())+len(resp.GetDeletes()) != min(len(key), 1) {
		key = "too early: " + key
	}
	p.seen = append(p.seen, key)
}

// TestAnnouncedIsThere: who pulls as soon as a change is announced gets the change.
func TestAnnouncedIsThere(t *testing.T) {
	p := &prompt{}
	p.owner = feed.NewOwner[*plegv1.PodRecord](house.PlegPods.Name, "one", p)
	for _, uid := range []string{"x", "y"} {
		if _, err := p.owner.Set(t.Context(), "a", &plegv1.PodRecord{Uid: uid}); err != nil {
			t.Fatal(err)
		}
	}
	p.owner.SetComplete(t.Context(), true)
	p.owner.Delete(t.Context(), "a")
	if want := []string{"a", "a", "", "a"}; !slices.Equal(p.seen, want) {
		t.Errorf("announced %q, want %q", p.seen, want)
	}
}

// TestPollsWithoutAnnouncements: where the reader or the owner is not on the bus, a
// change that is not announced is here within a second, also when one of them left
// it meanwhile. With both on the bus nothing is asked for in vain.
func TestPollsWithoutAnnouncements(t *testing.T) {
	for _, test := range []struct {
		name     string
		listener feed.Listener
		announce feed.Announcer
		most     time.Duration
	}{
		{"no bus at all", nil, nil, time.Second},
		{"reader without the bus", nil, &mouth{}, time.Second},
		{"reader away from the bus", &ear{deaf: true}, &mouth{}, time.Second},
		{"owner without the bus", &ear{}, nil, time.Second},
		{"owner away from the bus", &ear{}, &mouth{dumb: true}, time.Second},
		{"both on the bus", &ear{}, &mouth{}, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			owner := feed.NewOwner[*plegv1.PodRecord](house.PlegPods.Name, "one", test.announce)
			puller := &counted{Puller: feedtest.Local{house.PlegPods.Name: owner}}
			m := feed.NewReplica(feed.ReplicaConfig{Feed: house.PlegPods.Name, Puller: puller, Listener: test.listener}, feed.Decoder(feed.Whole[*plegv1.PodRecord]))
			changed := make(chan struct{}, 10)
			m.Watch(func([]string) { changed <- struct{}{} })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _ = m.Run(ctx) }() // it never fails
			<-changed
			for i := range 3 {
				began, before := time.Now(), puller.pulls.Load()
				if _, err := owner.Set(ctx, "pod", &plegv1.PodRecord{Uid: strconv.Itoa(i)}); err != nil {
					t.Fatal(err)
				}
				<-changed
				took := time.Since(began)
				if took > test.most {
					t.Errorf("%s: change %d took %s, want %s at most", test.name, i, took, test.most)
				}
				if pulls := puller.pulls.Load() - before; test.most > time.Second && (pulls != 1 || i > 0 && took < test.most) {
					t.Errorf("%s: %d pulls in %s, want one", test.name, pulls, took)
				}
			}
		})
	}
}
