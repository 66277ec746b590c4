// SPDX-License-Identifier: Apache-2.0

package feed_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	"github.com/sextant-node/sextant/test/feedtest"
)

// between lets something happen before each page but the first.
type between struct {
	feed.Puller
	pages int
	then  func(page int)
}

func (b *between) Pull(ctx context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error) {
	if req.GetAfter() > 0 && b.then != nil {
		b.then(b.pages)
	}
	b.pages++
	return b.Puller.Pull(ctx, req)
}

// TestPagesWhileItemsChange: whatever becomes of the items while a reader takes page
// after page, it ends at a state that the owner had, in one step.
func TestPagesWhileItemsChange(t *testing.T) {
	const size, perPage = 40, 10
	name := func(i int) string { return fmt.Sprintf("k%02d", i) }
	for what, change := range map[string]func(*feed.Owner[*feedv1.Revision], feedtest.Local, map[string]uint64){
		"nothing": func(*feed.Owner[*feedv1.Revision], feedtest.Local, map[string]uint64) {},
		"an item of a former page changes": func(o *feed.Owner[*feedv1.Revision], _ feedtest.Local, want map[string]uint64) {
			put(t, o, want, name(0), 1000)
		},
		"an item of a later page changes": func(o *feed.Owner[*feedv1.Revision], _ feedtest.Local, want map[string]uint64) {
			put(t, o, want, name(size-1), 1000)
		},
		"an item comes": func(o *feed.Owner[*feedv1.Revision], _ feedtest.Local, want map[string]uint64) {
			put(t, o, want, "new", 1)
		},
		"items of a former and a later page go": func(o *feed.Owner[*feedv1.Revision], _ feedtest.Local, want map[string]uint64) {
			for _, key := range []string{name(1), name(size - 2)} {
				o.Delete(t.Context(), key)
				delete(want, key)
			}
		},
		"an item goes and comes back": func(o *feed.Owner[*feedv1.Revision], _ feedtest.Local, want map[string]uint64) {
			o.Delete(t.Context(), name(2))
			put(t, o, want, name(2), 2000)
		},
		"more items go than the owner remembers": func(o *feed.Owner[*feedv1.Revision], _ feedtest.Local, want map[string]uint64) {
			o.Delete(t.Context(), name(3))
			delete(want, name(3))
			for range 1100 {
				put(t, o, map[string]uint64{}, "fleeting", 1)
				o.Delete(t.Context(), "fleeting")
			}
		},
		"the owner starts again": func(_ *feed.Owner[*feedv1.Revision], local feedtest.Local, want map[string]uint64) {
			o := feed.NewOwner[*feedv1.Revision]("f", "two", nil)
			clear(want)
			put(t, o, want, "after the start", 3)
			o.SetComplete(t.Context(), true)
			local["f"] = o
		},
	} {
		for _, behind := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reader behind %v", what, behind), func(t *testing.T) {
				ctx := t.Context()
				owner := feed.NewOwner[*feedv1.Revision]("f", "one", nil)
				local, want := feedtest.Local{"f": owner}, map[string]uint64{}
				link := &between{Puller: local}
				page := perPage * (len(name(0)) + proto.Size(&feedv1.Revision{N: 1}))
				m := feed.NewReplica(feed.ReplicaConfig{Feed: "f", Puller: link, Page: page}, feed.Decoder(feed.Whole[*feedv1.Revision]))
				put(t, owner, want, "first", 1)
				if behind {
					owner.SetComplete(ctx, true)
					pull(t, m)
				}
				owner.Delete(ctx, "first")
				delete(want, "first")
				for i := range size {
					put(t, owner, want, name(i), uint64(i+1))
				}
				owner.SetComplete(ctx, true)
				link.pages = 0
				steps := 0
				m.Watch(func(keys []string) { steps += min(len(keys), 1) })
				link.then = func(page int) {
					if page == 2 {
						change(owner, local, want)
					}
				}
				pull(t, m)
				if link.pages < 3 {
					t.Errorf("%d pages", link.pages)
				}
				got := m.Items()
				for key, n := range want {
					if got[key].GetN() != n {
						t.Errorf("%s is %d, want %d", key, got[key].GetN(), n)
					}
				}
				if len(got) != len(want) || !m.Complete() || steps != 1 {
					t.Errorf("%d items in %d steps, complete %v; want %d in one, complete", len(got), steps, m.Complete(), len(want))
				}
			})
		}
	}
}

func put(t *testing.T, o *feed.Owner[*feedv1.Revision], want map[string]uint64, key string, n uint64) {
	t.Helper()
	if _, err := o.Set(t.Context(), key, &feedv1.Revision{N: n}); err != nil {
		t.Fatal(err)
	}
	want[key] = n
}

func pull[T any](t *testing.T, m *feed.Replica[T]) {
	t.Helper()
	if err := m.Pull(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestFeedBeyondAMessage: a reader that starts gets a feed that is larger than a
// message may be, as one gets it that has followed it.
func TestFeedBeyondAMessage(t *testing.T) {
	s := serve(t)
	owner := feed.NewOwner[*wrapperspb.BytesValue](house.ConfigObjects.Name, "e", nil)
	s.server.Add(owner)
	value := wrapperspb.Bytes(bytes.Repeat([]byte("v"), 1<<20)) // the most an API server takes in an object is near
	const items = rpc.MaxMessage>>20 + 4
	for i := range items {
		if _, err := owner.Set(t.Context(), fmt.Sprint(i), value); err != nil {
			t.Fatal(err)
		}
	}
	sizes := &largest{Puller: s.conn}
	m := feed.NewReplica(feed.ReplicaConfig{Feed: house.ConfigObjects.Name, Puller: sizes}, feed.Decoder(feed.Whole[*wrapperspb.BytesValue]))
	pull(t, m)
	if got := len(m.Items()); got != items {
		t.Errorf("%d items, want %d", got, items)
	}
	if most := 9 << 20; sizes.bytes > most {
		t.Errorf("an answer of %d bytes, want %d at most", sizes.bytes, most)
	}
}

// largest remembers the size of the largest answer.
type largest struct {
	feed.Puller
	bytes int
}

func (l *largest) Pull(ctx context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error) {
	resp, err := l.Puller.Pull(ctx, req)
	l.bytes = max(l.bytes, proto.Size(resp))
	return resp, err
}

// TestAReaderThatKnowsNoPages, of a version before them, gets everything at once.
func TestAReaderThatKnowsNoPages(t *testing.T) {
	owner, want := feed.NewOwner[*feedv1.Revision]("f", "e", nil), map[string]uint64{}
	for i := range 100 {
		put(t, owner, want, fmt.Sprint(i), 1)
	}
	resp := owner.Changes(&feedv1.ChangesRequest{Feed: "f"})
	if len(resp.GetUpserts()) != len(want) || resp.GetMore() {
		t.Errorf("%d items, more %v", len(resp.GetUpserts()), resp.GetMore())
	}
}

// TestAnItemLargerThanAPage comes alone.
func TestAnItemLargerThanAPage(t *testing.T) {
	owner, want := feed.NewOwner[*feedv1.Revision]("f", "e", nil), map[string]uint64{}
	for i := range 3 {
		put(t, owner, want, fmt.Sprint(i), 1)
	}
	link := &between{Puller: feedtest.Local{"f": owner}}
	m := feed.NewReplica(feed.ReplicaConfig{Feed: "f", Puller: link, Page: 1}, feed.Decoder(feed.Whole[*feedv1.Revision]))
	pull(t, m)
	if len(m.Items()) != 3 || link.pages != 3 {
		t.Errorf("%d items on %d pages, want 3 on 3", len(m.Items()), link.pages)
	}
}
