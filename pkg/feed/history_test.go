// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// TestHistory runs writers, readers and announcements at the same time, with owners
// that are killed, and holds what every reader saw against what was written: each
// state of a replica is the state its owner had at that revision, whole; a replica
// never goes back; a reader that has reached the revision of a write sees it; and
// what was deleted stays away, however much of the owner's memory of deletions was
// cut off meanwhile.
func TestHistory(t *testing.T) {
	h := &history{t: t, lives: map[string][]written{}, truth: map[string]uint64{}, rumour: &rumour{}}
	h.start()
	readers := []*reader{
		h.reader(ReplicaConfig{}), h.reader(ReplicaConfig{Page: 60}),
		h.reader(ReplicaConfig{Page: 1, Settle: time.Millisecond}), h.reader(ReplicaConfig{Page: 300}),
	}
	rare := h.reader(ReplicaConfig{Page: 100}) // further behind than an owner remembers
	const writers, writes, lives = 4, 6000, 3
	ctx, cancel := context.WithCancel(t.Context())
	var running, writing sync.WaitGroup
	for _, r := range readers {
		running.Go(func() { _ = r.replica.Run(ctx) }) // it never fails
	}
	for w := range writers {
		writing.Go(func() {
			for i := range writes {
				if w == 0 && i > 0 && i%(writes/lives) == 0 {
					h.start()
				}
				if w == 0 && h.forgotten() {
					rare.pull(ctx)
				}
				key := fmt.Sprintf("w%d-%d", w, rand.IntN(8))
				if rand.IntN(10) == 0 { // one that is left alone for long
					key = fmt.Sprintf("w%d-at-%d", w, i/500)
				}
				h.write(key, readers[(w+i)%len(readers)])
			}
		})
	}
	writing.Wait()
	cancel()
	running.Wait()
	if h.behind == 0 {
		t.Error("the owners remembered every deletion")
	}
	readers = append(readers, rare)
	for _, r := range readers {
		r.pull(t.Context())
		if got := r.items(); !maps.Equal(got, h.truth) || !r.replica.Complete() {
			t.Errorf("at the end %v, complete %v; want %v", got, r.replica.Complete(), h.truth)
		}
		h.judge(r.samples)
	}
}

// written is one write: the number it got, and the value, 0 for a deletion.
type written struct {
	n     uint64
	key   string
	value uint64
}

type history struct {
	t      *testing.T
	rumour *rumour

	life  sync.RWMutex // held to write while one owner takes the place of another
	owner *Owner[*feedv1.Revision]

	mu    sync.Mutex
	last  uint64
	lives map[string][]written // by epoch
	truth map[string]uint64
	// deleted counts deletions until the reader that is far behind pulls again,
	// behind how often it did.
	deleted, behind int
}

// forgotten tells now and then that an owner cannot remember all deletions since
// this last was true.
func (h *history) forgotten() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deleted < 3*maxTombstones/2 {
		return false
	}
	h.deleted = 0
	h.behind++
	return true
}

// start kills the owner; the next one knows all that was written, a bit at a time.
func (h *history) start() {
	h.life.Lock()
	defer h.life.Unlock()
	h.owner = NewOwner[*feedv1.Revision]("f", fmt.Sprintf("epoch %d", len(h.lives)), h.rumour)
	h.lives[h.owner.revision.Epoch] = nil
	for key, value := range h.truth {
		h.set(key, value)
	}
	h.owner.SetComplete(context.Background(), true)
}

// Pull implements Puller: a reader reaches the owner that lives.
func (h *history) Pull(_ context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error) {
	h.life.RLock()
	owner := h.owner
	h.life.RUnlock()
	return owner.Changes(req), nil
}

// write changes an item, of which the caller is the only writer, and has a reader
// look at it.
func (h *history) write(key string, r *reader) {
	h.life.RLock()
	h.mu.Lock()
	h.last++
	value := h.last
	if h.truth[key] != 0 && rand.IntN(3) > 0 {
		value = 0
	}
	h.mu.Unlock()
	revision := h.set(key, value)
	h.life.RUnlock()
	if rand.IntN(4) > 0 {
		return
	}
	r.pull(context.Background())
	if !r.replica.At(revision) {
		return // of an owner that was killed
	}
	if got, _ := r.replica.Get(key); got.GetN() != value {
		h.t.Errorf("%s is %d at %s, want %d written by the reader itself", key, got.GetN(), revision, value)
	}
}

// set changes an item; callers hold history.life.
func (h *history) set(key string, value uint64) (revision Revision) {
	ctx := context.Background()
	if value == 0 {
		revision = h.owner.Delete(ctx, key)
	} else {
		var err error
		if revision, err = h.owner.Set(ctx, key, &feedv1.Revision{N: value}); err != nil {
			h.t.Error(err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lives[revision.Epoch] = append(h.lives[revision.Epoch], written{revision.N, key, value})
	if value == 0 {
		h.deleted++
		delete(h.truth, key)
	} else {
		h.truth[key] = value
	}
	return revision
}

// reader is a replica, and every state it was seen in, in this order.
type reader struct {
	replica *Replica[*feedv1.Revision]
	mu      sync.Mutex
	samples []sample
}

type sample struct {
	at       Revision
	complete bool
	items    map[string]copied[*feedv1.Revision]
}

func (h *history) reader(cfg ReplicaConfig) *reader {
	cfg.Feed, cfg.Puller, cfg.Listener, cfg.Safety = "f", h, h.rumour, 20*time.Millisecond
	r := &reader{replica: NewReplica(cfg, Decoder(Whole[*feedv1.Revision]))}
	r.replica.Watch(func([]string) { r.sample() })
	return r
}

// pull may be overtaken by another one, again and again.
func (r *reader) pull(ctx context.Context) {
	for r.replica.Pull(ctx) != nil {
	}
	r.sample()
}

func (r *reader) sample() {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.replica
	m.mu.Lock()
	s := sample{m.revision, m.complete, nil}
	if last := len(r.samples) - 1; m.synced && (last < 0 || r.samples[last].at != s.at) {
		s.items = maps.Clone(m.items)
		r.samples = append(r.samples, s)
	}
	m.mu.Unlock()
}

func (r *reader) items() map[string]uint64 {
	all := map[string]uint64{}
	for key, item := range r.replica.Items() {
		all[key] = item.GetN()
	}
	return all
}

// judge holds what a replica was seen to have against what was written.
func (h *history) judge(samples []sample) {
	before := Revision{}
	for i := 0; i < len(samples); {
		epoch := samples[i].at.Epoch
		events := slices.Clone(h.lives[epoch])
		// Deleting what is not there has the number of the change before.
		slices.SortStableFunc(events, func(a, b written) int { return cmp.Compare(a.n, b.n) })
		state := map[string]uint64{}
		for ; i < len(samples) && samples[i].at.Epoch == epoch; i++ {
			s := samples[i]
			if before.Epoch > epoch || before.Epoch == epoch && before.N > s.at.N {
				h.t.Fatalf("a replica went from %s to %s", before, s.at)
			}
			before = s.at
			for ; len(events) > 0 && events[0].n <= s.at.N; events = events[1:] {
				if events[0].value == 0 {
					delete(state, events[0].key)
				} else {
					state[events[0].key] = events[0].value
				}
			}
			got := map[string]uint64{}
			for key, item := range s.items {
				switch {
				case item.epoch == epoch:
					got[key] = item.value.GetN()
				case s.complete:
					h.t.Fatalf("%s, of %s, is there at %s of a complete owner", key, item.epoch, s.at)
				}
			}
			if !maps.Equal(got, state) {
				h.t.Fatalf("at %s the replica had %v, the owner %v", s.at, got, state)
			}
		}
	}
}

// rumour is a bus that loses half of the announcements and brings others late.
type rumour struct {
	mu    sync.Mutex
	looks []func(Revision)
	late  []Revision
}

func (r *rumour) Connected() bool { return true }

func (r *rumour) Listen(_ string, look func(Revision)) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks = append(r.looks, look)
	return func() {}
}

func (r *rumour) Announce(_ context.Context, _, _ string, revision Revision) {
	r.mu.Lock()
	looks := r.looks
	r.late = append(r.late, revision)
	if len(r.late) > 10 {
		revision, r.late = r.late[0], r.late[1:]
	}
	r.mu.Unlock()
	for _, look := range looks {
		if rand.IntN(2) == 0 {
			look(revision)
		}
	}
}
