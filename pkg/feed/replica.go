// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sextant-node/sextant/pkg/signal"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// Listener tells a replica to look. Listen calls look after each announcement,
// with the revision announced, and with none after each reconnect, from any
// goroutine, until stop is called. Connected says whether announcements arrive
// at all.
type Listener interface {
	Listen(feed string, look func(Revision)) (stop func())
	Connected() bool
}

// ReplicaConfig says what to copy and how eagerly.
type ReplicaConfig struct {
	// Feed is the name of the feed.
	Feed   string
	Puller Puller
	// Listener may be nil: then the replica polls.
	Listener Listener
	// Poll is the period without announcements (default 500 ms): the reader or the
	// owner is not on the bus. Safety is the period with them (default 1 min), for
	// one may be lost.
	Poll, Safety time.Duration
	// Page is the most that one answer may hold, in bytes (default 8 MiB, which is
	// also the most an owner gives).
	Page int
	// Settle is how long announcements are let gather before a pull, by a reader
	// that is in no hurry; it looks at once when it is asked to.
	Settle time.Duration
	// OnDemand is for a reader that needs the feed now and then and calls Pull before it
	// reads: Run takes the whole feed once, and leaves later changes to Pull.
	OnDemand bool
	// Since is where an earlier life of the reader had come to.
	Since Revision
	Log   *slog.Logger
}

// Replica is a reader's copy of a feed, each item decoded once into a T. Safe
// for concurrent use. What Get and Items return is shared: do not write to it.
type Replica[T any] struct {
	cfg    ReplicaConfig
	decode func(key string, value []byte) (T, error)
	look   signal.Signal

	mu       sync.Mutex
	revision Revision
	want     Revision // the last one announced that had not been reached
	anyway   bool     // look, whatever was announced
	complete bool
	synced   bool
	told     bool // the owner announces its changes
	items    map[string]copied[T]
	refused  map[string]bool // items of this epoch that do not decode
	err      error
	watchers []func(keys []string)
	counts   Counts
}

// Counts are the work of a replica so far.
type Counts struct {
	// Pulls are answers of the owner, Decodings items of them that were decoded, and Bytes
	// the size of all items of the answers.
	Pulls, Decodings, Bytes uint64
}

// copied is one item. sum is the SHA-256 of its bytes, which are not kept: most readers
// would hold each pod twice.
type copied[T any] struct {
	value T
	sum   [sha256.Size]byte
	epoch string
}

// NewReplica makes an empty replica; Run fills it. decode turns an item's bytes
// into a T; an item it refuses is logged and the former value kept.
func NewReplica[T any](cfg ReplicaConfig, decode func(key string, value []byte) (T, error)) *Replica[T] {
	cfg.Poll = cmp.Or(cfg.Poll, 500*time.Millisecond)
	cfg.Safety = cmp.Or(cfg.Safety, time.Minute)
	cfg.Page = cmp.Or(cfg.Page, maxPage)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Replica[T]{
		cfg: cfg, decode: decode, look: signal.New(),
		revision: cfg.Since, items: map[string]copied[T]{}, refused: map[string]bool{},
	}
}

// Feed is the name of the feed copied.
func (m *Replica[T]) Feed() string { return m.cfg.Feed }

// Watch registers a function that is called with the keys of every change, after it
// was applied: a change is another value, or that the owner lists an item again after it
// began anew (Current). It is called without keys after Complete or the epoch has changed,
// also where items changed with it, or the replica has come to another revision without
// any change of an item. It must return quickly and may call the replica. Register before
// Run.
func (m *Replica[T]) Watch(changed func(keys []string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers = append(m.watchers, changed)
}

// Look asks for a pull now; a burst becomes one.
func (m *Replica[T]) Look() {
	m.mu.Lock()
	m.anyway = true
	m.mu.Unlock()
	m.look.Send()
}

// LookFor asks for a pull unless the replica has reached a revision, or does
// before the pull begins.
func (m *Replica[T]) LookFor(want Revision) {
	m.mu.Lock()
	// What is announced may come late, and not in its order.
	if !m.want.Reached(want) {
		m.want = want
	}
	m.mu.Unlock()
	m.look.Send()
}

// heard is called with announcements.
func (m *Replica[T]) heard(announced Revision) {
	if announced == (Revision{}) {
		m.Look()
		return
	}
	m.LookFor(announced)
}

// due tells, after a wake, whether to pull, and whether at once.
func (m *Replica[T]) due() (pull, now bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now = m.anyway
	m.anyway = false
	return now || !m.revision.Reached(m.want), now || m.cfg.Settle == 0
}

// Run keeps the replica current until ctx ends. It never fails: an owner that is
// away is waited for.
func (m *Replica[T]) Run(ctx context.Context) error {
	if m.cfg.Listener != nil {
		stop := m.cfg.Listener.Listen(m.cfg.Feed, m.heard)
		defer stop()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures, settling := 0, false
	var pace signal.Pace
	for {
		if m.cfg.OnDemand && m.Listed() {
			<-ctx.Done()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.look:
			if pull, now := m.due(); !pull || settling && !now {
				continue
			} else if !now {
				timer.Reset(m.cfg.Settle)
				settling = true
				continue
			}
		case <-timer.C:
		}
		settling = false
		began := time.Now()
		changed, err := m.pull(ctx)
		if err != nil {
			failures++
			if failures == 1 {
				m.cfg.Log.Debug("feed not reachable", "feed", m.cfg.Feed, "error", err.Error())
			}
		} else {
			failures = 0
		}
		pace.Rest(ctx, began, slices.Values(changed))
		if failures == 0 && m.announced() {
			timer.Reset(untilSafety(time.Now(), m.cfg.Safety))
			continue
		}
		wait := m.cfg.Poll
		if failures > 0 && failures < 10 {
			wait = min(wait, 100*time.Millisecond) // the owner is probably starting
		}
		// Spread, so that a node's replicas do not pull in step.
		timer.Reset(wait - time.Duration(rand.Int64N(int64(wait)/5+1)))
	}
}

// announced reports whether the owner's announcements arrive here: both are on the bus.
func (m *Replica[T]) announced() bool {
	m.mu.Lock()
	told := m.told
	m.mu.Unlock()
	return told && m.cfg.Listener != nil && m.cfg.Listener.Connected()
}

// pullTries bounds how often an answer that cannot be applied is asked for again.
const pullTries = 5

// Pull asks the owner and applies the answer. After it has returned nil the
// replica is at least as new as the call.
func (m *Replica[T]) Pull(ctx context.Context) error {
	_, err := m.pull(ctx)
	return err
}

// pull is Pull; it returns the keys that have changed.
func (m *Replica[T]) pull(ctx context.Context) (changed []string, err error) {
	for range pullTries {
		m.mu.Lock()
		since := m.revision
		m.mu.Unlock()
		resp, err := m.pages(ctx, since)
		m.mu.Lock()
		m.err = err
		m.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if changed, ok := m.apply(since, resp); ok {
			return changed, nil
		}
	}
	m.Look()
	return nil, fmt.Errorf("feed %s: %d answers overtaken by others", m.cfg.Feed, pullTries)
}

// apply returns the keys that have changed, and false for an answer that does not fit what
// the replica has now.
func (m *Replica[T]) apply(since Revision, resp *feedv1.ChangesResponse) (changed []string, ok bool) {
	m.mu.Lock()
	if m.revision != since {
		// Another pull came first; this answer may be older than it.
		m.mu.Unlock()
		return nil, false
	}
	m.counts.Pulls++
	was, refused := m.completeNow(), maps.Clone(m.refused)
	next := RevisionFrom(resp.GetRevision())
	if !resp.GetSnapshot() && next.Epoch != since.Epoch {
		// Not an answer an owner gives; start over.
		m.revision = Revision{}
		m.mu.Unlock()
		return nil, false
	}
	if resp.GetSnapshot() {
		clear(m.refused)
	}
	changed = m.upsert(next.Epoch, resp.GetUpserts())
	if resp.GetSnapshot() {
		listed := make(map[string]bool, len(resp.GetUpserts()))
		for _, item := range resp.GetUpserts() {
			listed[item.GetKey()] = true
		}
		// Gone is what this epoch had and has no more, and, once the owner is
		// complete, whatever it does not list.
		changed = append(changed, m.drop(func(key string, item copied[T]) bool {
			return !listed[key] && (resp.GetComplete() || item.epoch == next.Epoch)
		})...)
	}
	for _, key := range resp.GetDeletes() {
		delete(m.refused, key)
		if _, ok := m.items[key]; ok {
			delete(m.items, key)
			changed = append(changed, key)
		}
	}
	if resp.GetComplete() && (!m.complete || next.Epoch != since.Epoch) { // else there is none
		changed = append(changed, m.drop(func(_ string, item copied[T]) bool { return item.epoch != next.Epoch })...)
	}
	for key := range refused {
		if !m.refused[key] && !slices.Contains(changed, key) { // Lookup says otherwise now
			changed = append(changed, key)
		}
	}
	moved := !m.synced || len(changed) == 0 && next != since || next.Epoch != since.Epoch || m.complete != resp.GetComplete()
	m.revision, m.complete, m.synced, m.told = next, resp.GetComplete(), true, resp.GetAnnounced()
	moved = moved || m.completeNow() != was
	watchers := m.watchers
	m.mu.Unlock()
	for _, w := range watchers {
		if len(changed) > 0 {
			w(changed)
		}
		if moved {
			w(nil)
		}
	}
	return changed, true
}

func (m *Replica[T]) upsert(epoch string, items []*feedv1.Item) (changed []string) {
	for _, item := range items {
		key := item.GetKey()
		m.counts.Bytes += uint64(len(item.GetValue()))
		delete(m.refused, key)
		had, ok := m.items[key]
		sum := sha256.Sum256(item.GetValue())
		if ok && had.sum == sum {
			if had.epoch != epoch {
				had.epoch = epoch
				m.items[key] = had
				changed = append(changed, key)
			}
			continue
		}
		m.counts.Decodings++
		value, err := m.decode(key, item.GetValue())
		if err != nil {
			m.cfg.Log.Error("item refused", "feed", m.cfg.Feed, "key", key, "error", err.Error())
			m.refused[key] = true
			if ok {
				had.epoch = epoch
				m.items[key] = had
			}
			continue
		}
		m.items[key] = copied[T]{value, sum, epoch}
		changed = append(changed, key)
	}
	return changed
}

func (m *Replica[T]) drop(gone func(string, copied[T]) bool) (dropped []string) {
	for key, item := range m.items {
		if gone(key, item) {
			delete(m.items, key)
			dropped = append(dropped, key)
		}
	}
	return dropped
}

// Get reads one item.
func (m *Replica[T]) Get(key string) (T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	item, ok := m.items[key]
	return item.value, ok
}

// Items is every item by key.
func (m *Replica[T]) Items() map[string]T {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]T, len(m.items))
	for key, item := range m.items {
		all[key] = item.value
	}
	return all
}

// Current reports whether an item was listed in the epoch the replica is in, whether or
// not it decodes. One that was not is kept from an earlier life of its owner, which
// has not said yet whether it still has it.
func (m *Replica[T]) Current(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	item, ok := m.items[key]
	return m.refused[key] || ok && item.epoch == m.revision.Epoch
}

// Complete reports whether the replica has every item there is. While the owner lists
// one that does not decode, it has not. A decision about one item goes by Lookup: an
// item that is not understood says nothing of the others. Ask before reading Items, which
// are then of that moment or later: of what came in between nothing may be said to be absent.
func (m *Replica[T]) Complete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.completeNow()
}

// completeNow is Complete; callers hold Replica.mu.
func (m *Replica[T]) completeNow() bool { return m.complete && len(m.refused) == 0 }

// Listed reports whether the owner lists every item there is, whether or not each of
// them decodes. As with Complete, ask before reading Items.
func (m *Replica[T]) Listed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.complete
}

// Lookup is Get, and reports whether that is the owner's word: the item has this value, or
// does not exist. Both are of one moment: an item that comes between two questions would be
// known not to exist.
func (m *Replica[T]) Lookup(key string) (value T, ok, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	item, ok := m.items[key]
	return item.value, ok, m.complete && !m.refused[key]
}

// Synced reports whether the owner has answered at least once.
func (m *Replica[T]) Synced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.synced
}

// At reports whether the replica has reached a revision that an owner's command
// answered with.
func (m *Replica[T]) At(want Revision) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision.Reached(want)
}

// State is how far the replica has come.
func (m *Replica[T]) State() (revision Revision, complete bool, items int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision, m.complete, len(m.items), m.err
}

// Counts are the work of the replica so far.
func (m *Replica[T]) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}
