package feed

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// Puller asks an owner for changes; feedv1.FeedServiceClient wrapped by Remote
// is one, Local is another.
type Puller interface {
	Pull(ctx context.Context, feed string, since Revision) (*feedv1.ChangesResponse, error)
}

// Listener tells a mirror to look. Listen calls look after each announcement,
// with the revision announced, and with none after each reconnect, from any
// goroutine, until stop is called. Connected says whether announcements arrive
// at all.
type Listener interface {
	Listen(feed string, look func(Revision)) (stop func())
	Connected() bool
}

// MirrorConfig says what to mirror and how eagerly.
type MirrorConfig struct {
	// Feed is the name of the feed.
	Feed   string
	Puller Puller
	// Listener may be nil: then the mirror polls.
	Listener Listener
	// Poll is the period without a bus (default 500 ms); Safety the period with
	// it (default 30 s), for an announcement may be lost.
	Poll, Safety time.Duration
	// Settle is how long announcements are let gather before a pull, by a reader
	// that is in no hurry; it looks at once when it is asked to.
	Settle time.Duration
	// Since is where an earlier life of the reader had come to.
	Since Revision
	Log   *slog.Logger
}

// Mirror is a reader's copy of a feed, each item decoded once into a T. Safe
// for concurrent use. What Get and Items return is shared: do not write to it.
type Mirror[T any] struct {
	cfg    MirrorConfig
	decode func(key string, value []byte) (T, error)
	look   chan struct{}

	mu       sync.Mutex
	revision Revision
	want     Revision // the last one announced that had not been reached
	anyway   bool     // look, whatever was announced
	complete bool
	synced   bool
	items    map[string]mirrored[T]
	refused  map[string]bool // items of this epoch that do not decode
	err      error
	watchers []func(keys []string)
}

type mirrored[T any] struct {
	value T
	raw   []byte
	epoch string
}

// NewMirror makes an empty mirror; Run fills it. decode turns an item's bytes
// into a T; an item it refuses is logged and the former value kept.
func NewMirror[T any](cfg MirrorConfig, decode func(key string, value []byte) (T, error)) *Mirror[T] {
	if cfg.Poll == 0 {
		cfg.Poll = 500 * time.Millisecond
	}
	if cfg.Safety == 0 {
		cfg.Safety = 30 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Mirror[T]{
		cfg: cfg, decode: decode, look: make(chan struct{}, 1),
		revision: cfg.Since, items: map[string]mirrored[T]{}, refused: map[string]bool{},
	}
}

// Message is the decoder for mirrors that want the feed's message as it is.
func Message[M proto.Message](_ string, value []byte) (M, error) {
	var zero M
	message := zero.ProtoReflect().New().Interface().(M)
	return message, proto.Unmarshal(value, message)
}

// Feed is the name of the feed mirrored.
func (m *Mirror[T]) Feed() string { return m.cfg.Feed }

// Watch registers a function that hears the keys of every change, after it was
// applied; no keys means that only completeness changed. It must return
// quickly and may call the mirror. Register before Run.
func (m *Mirror[T]) Watch(changed func(keys []string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers = append(m.watchers, changed)
}

// Look asks for a pull now; a burst becomes one.
func (m *Mirror[T]) Look() {
	m.mu.Lock()
	m.anyway = true
	m.mu.Unlock()
	m.wake()
}

// LookFor asks for a pull unless the mirror has reached a revision, or does
// before the pull begins.
func (m *Mirror[T]) LookFor(want Revision) {
	m.mu.Lock()
	// What is announced may come late, and not in its order.
	if !m.want.Reached(want) {
		m.want = want
	}
	m.mu.Unlock()
	m.wake()
}

// heard is told of announcements.
func (m *Mirror[T]) heard(announced Revision) {
	if announced == (Revision{}) {
		m.Look()
		return
	}
	m.LookFor(announced)
}

func (m *Mirror[T]) wake() {
	select {
	case m.look <- struct{}{}:
	default:
	}
}

// due tells, after a wake, whether to pull, and whether at once.
func (m *Mirror[T]) due() (pull, now bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now = m.anyway
	m.anyway = false
	return now || !m.revision.Reached(m.want), now || m.cfg.Settle == 0
}

// Run keeps the mirror current until ctx ends. It never fails: an owner that is
// away is waited for.
func (m *Mirror[T]) Run(ctx context.Context) error {
	connected := func() bool { return m.cfg.Listener != nil && m.cfg.Listener.Connected() }
	if m.cfg.Listener != nil {
		stop := m.cfg.Listener.Listen(m.cfg.Feed, m.heard)
		defer stop()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures, settling := 0, false
	for {
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
		if err := m.Pull(ctx); err != nil {
			failures++
			if failures == 1 {
				m.cfg.Log.Debug("feed not reachable", "feed", m.cfg.Feed, "error", err.Error())
			}
		} else {
			failures = 0
		}
		wait := m.cfg.Safety
		if failures > 0 || !connected() {
			wait = m.cfg.Poll
			if failures > 0 && failures < 10 {
				wait = min(wait, 100*time.Millisecond) // the owner is probably starting
			}
		}
		// Spread, so that a node's mirrors do not pull in step.
		timer.Reset(wait - time.Duration(rand.Int64N(int64(wait)/5+1)))
	}
}

// pullTries bounds how often an answer that cannot be applied is asked for again.
const pullTries = 5

// Pull asks the owner and applies the answer. After it has returned nil the
// mirror is at least as new as the call.
func (m *Mirror[T]) Pull(ctx context.Context) error {
	for range pullTries {
		m.mu.Lock()
		since := m.revision
		m.mu.Unlock()
		resp, err := m.cfg.Puller.Pull(ctx, m.cfg.Feed, since)
		m.mu.Lock()
		m.err = err
		m.mu.Unlock()
		if err != nil {
			return err
		}
		if m.apply(since, resp) {
			return nil
		}
	}
	m.Look()
	return fmt.Errorf("feed %s: %d answers overtaken by others", m.cfg.Feed, pullTries)
}

// apply reports false for an answer that does not fit what the mirror has now.
func (m *Mirror[T]) apply(since Revision, resp *feedv1.ChangesResponse) bool {
	m.mu.Lock()
	if m.revision != since {
		// Another pull came first; this answer may be older than it.
		m.mu.Unlock()
		return false
	}
	next := RevisionFrom(resp.GetRevision())
	if !resp.GetSnapshot() && next.Epoch != since.Epoch {
		// Not an answer an owner gives; start over.
		m.revision = Revision{}
		m.mu.Unlock()
		return false
	}
	if resp.GetSnapshot() {
		clear(m.refused)
	}
	changed := m.upsert(next.Epoch, resp.GetUpserts())
	if resp.GetSnapshot() {
		listed := make(map[string]bool, len(resp.GetUpserts()))
		for _, item := range resp.GetUpserts() {
			listed[item.GetKey()] = true
		}
		// Gone is what this epoch had and has no more, and, once the owner is
		// complete, whatever it does not list.
		changed = append(changed, m.drop(func(key string, item mirrored[T]) bool {
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
	if resp.GetComplete() {
		changed = append(changed, m.drop(func(_ string, item mirrored[T]) bool { return item.epoch != next.Epoch })...)
	}
	tell := len(changed) > 0 || m.complete != resp.GetComplete() || !m.synced
	m.revision, m.complete, m.synced = next, resp.GetComplete(), true
	watchers := m.watchers
	m.mu.Unlock()
	if tell {
		for _, w := range watchers {
			w(changed)
		}
	}
	return true
}

func (m *Mirror[T]) upsert(epoch string, items []*feedv1.Item) (changed []string) {
	for _, item := range items {
		key := item.GetKey()
		delete(m.refused, key)
		had, ok := m.items[key]
		if ok && bytes.Equal(had.raw, item.GetValue()) {
			had.epoch = epoch
			m.items[key] = had
			continue
		}
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
		m.items[key] = mirrored[T]{value, item.GetValue(), epoch}
		changed = append(changed, key)
	}
	return changed
}

func (m *Mirror[T]) drop(gone func(string, mirrored[T]) bool) (dropped []string) {
	for key, item := range m.items {
		if gone(key, item) {
			delete(m.items, key)
			dropped = append(dropped, key)
		}
	}
	return dropped
}

// Get reads one item.
func (m *Mirror[T]) Get(key string) (T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	item, ok := m.items[key]
	return item.value, ok
}

// Items is every item by key.
func (m *Mirror[T]) Items() map[string]T {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]T, len(m.items))
	for key, item := range m.items {
		all[key] = item.value
	}
	return all
}

// Current tells whether an item was listed in the epoch the mirror is in. One
// that was not is kept from an earlier life of its owner, which has not said yet
// whether it still has it.
func (m *Mirror[T]) Current(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	item, ok := m.items[key]
	return ok && item.epoch == m.revision.Epoch
}

// Complete tells whether "absent" means "does not exist". While the owner lists
// an item that cannot be decoded, it does not.
func (m *Mirror[T]) Complete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.complete && len(m.refused) == 0
}

// Synced tells whether the owner has answered at least once.
func (m *Mirror[T]) Synced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.synced
}

// At tells whether the mirror has reached a revision that an owner's command
// answered with.
func (m *Mirror[T]) At(want Revision) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision.Reached(want)
}

// State is how far the mirror has come.
func (m *Mirror[T]) State() (revision Revision, complete bool, items int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision, m.complete, len(m.items), m.err
}

// Remote pulls over a connection.
type Remote struct{ Client feedv1.FeedServiceClient }

// Pull implements Puller.
func (r Remote) Pull(ctx context.Context, feed string, since Revision) (*feedv1.ChangesResponse, error) {
	req := &feedv1.ChangesRequest{Feed: feed}
	if since != (Revision{}) {
		req.Since = since.Proto()
	}
	return r.Client.Changes(ctx, req)
}

// Local pulls from owners in the same process, for tests and tools.
type Local map[string]Source

// Pull implements Puller.
func (l Local) Pull(_ context.Context, feed string, since Revision) (*feedv1.ChangesResponse, error) {
	f, ok := l[feed]
	if !ok {
		return nil, fmt.Errorf("no feed %q", feed)
	}
	return f.Changes(since), nil
}
