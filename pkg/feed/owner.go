package feed

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// maxTombstones bounds how many deletions an owner remembers; a reader further
// behind gets a snapshot.
const maxTombstones = 1024

// Announcer tells readers that a key changed. It must not block; losing an
// announcement is allowed. The trace of ctx travels with it.
type Announcer interface {
	Announce(ctx context.Context, feed, key string, revision Revision)
}

// Owner holds the items of one feed. Its service is the only writer. Safe for
// concurrent use.
type Owner[M proto.Message] struct {
	name     string
	announce Announcer

	mu         sync.Mutex
	revision   Revision
	complete   bool
	items      map[string]*list.Element // of *ownedItem, ordered by n
	order      *list.List
	tombstones []tombstone
	floor      uint64 // deletions up to this n are forgotten
}

type ownedItem struct {
	key   string
	n     uint64
	value []byte
}

type tombstone struct {
	key string
	n   uint64
}

// NewOwner makes an empty, incomplete feed. epoch must be new at each start of
// the service. announce may be nil.
func NewOwner[M proto.Message](name, epoch string, announce Announcer) *Owner[M] {
	return &Owner[M]{
		name: name, announce: announce,
		revision: Revision{Epoch: epoch},
		items:    map[string]*list.Element{},
		order:    list.New(),
	}
}

// Name of the feed.
func (o *Owner[M]) Name() string { return o.name }

var deterministic = proto.MarshalOptions{Deterministic: true}

// Set stores an item and announces it; an equal value is not a change. The
// revision returned holds the value either way.
func (o *Owner[M]) Set(ctx context.Context, key string, message M) (Revision, error) {
	value, err := deterministic.Marshal(message)
	if err != nil {
		return Revision{}, fmt.Errorf("feed %s: item %s: %w", o.name, key, err)
	}
	o.mu.Lock()
	if e, ok := o.items[key]; ok {
		item := e.Value.(*ownedItem)
		if bytes.Equal(item.value, value) {
			defer o.mu.Unlock()
			return o.revision, nil
		}
		o.revision.N++
		item.n, item.value = o.revision.N, value
		o.order.MoveToBack(e)
	} else {
		o.revision.N++
		o.items[key] = o.order.PushBack(&ownedItem{key, o.revision.N, value})
	}
	revision := o.revision
	o.mu.Unlock()
	o.tell(ctx, key, revision)
	return revision, nil
}

// Delete removes an item; a missing one is not a change.
func (o *Owner[M]) Delete(ctx context.Context, key string) Revision {
	o.mu.Lock()
	e, ok := o.items[key]
	if !ok {
		defer o.mu.Unlock()
		return o.revision
	}
	o.revision.N++
	o.order.Remove(e)
	delete(o.items, key)
	o.tombstones = append(o.tombstones, tombstone{key, o.revision.N})
	if over := len(o.tombstones) - maxTombstones; over > 0 {
		o.floor = o.tombstones[over-1].n
		o.tombstones = append([]tombstone(nil), o.tombstones[over:]...)
	}
	revision := o.revision
	o.mu.Unlock()
	o.tell(ctx, key, revision)
	return revision
}

// SetComplete says whether the owner knows every item.
func (o *Owner[M]) SetComplete(ctx context.Context, complete bool) {
	o.mu.Lock()
	if o.complete == complete {
		o.mu.Unlock()
		return
	}
	o.complete = complete
	o.revision.N++
	revision := o.revision
	o.mu.Unlock()
	o.tell(ctx, "", revision)
}

// Get reads an item back.
func (o *Owner[M]) Get(key string) (M, bool) {
	var zero M
	o.mu.Lock()
	e, ok := o.items[key]
	if !ok {
		o.mu.Unlock()
		return zero, false
	}
	value := e.Value.(*ownedItem).value
	o.mu.Unlock()
	message := zero.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(value, message); err != nil {
		return zero, false
	}
	return message, true
}

// Keys of all items, oldest change first.
func (o *Owner[M]) Keys() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := make([]string, 0, len(o.items))
	for e := o.order.Front(); e != nil; e = e.Next() {
		keys = append(keys, e.Value.(*ownedItem).key)
	}
	return keys
}

// State is the owner's own view of the feed.
func (o *Owner[M]) State() (revision Revision, complete bool, items int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.revision, o.complete, len(o.items)
}

// Changes answers a reader (see feed.proto).
func (o *Owner[M]) Changes(since Revision) *feedv1.ChangesResponse {
	o.mu.Lock()
	defer o.mu.Unlock()
	resp := &feedv1.ChangesResponse{Revision: o.revision.Proto(), Complete: o.complete}
	resp.Snapshot = since.Epoch != o.revision.Epoch || since.N < o.floor || since.N > o.revision.N
	from := since.N
	if resp.Snapshot {
		from = 0
	}
	// The newest changes are at the back: walk only as far as needed.
	first := o.order.Back()
	for e := first; e != nil && e.Value.(*ownedItem).n > from; e = e.Prev() {
		first = e
	}
	for e := first; e != nil; e = e.Next() {
		if item := e.Value.(*ownedItem); item.n > from {
			resp.Upserts = append(resp.Upserts, &feedv1.Item{Key: item.key, Value: item.value, N: item.n})
		}
	}
	if resp.Snapshot {
		return resp
	}
	for i := len(o.tombstones) - 1; i >= 0 && o.tombstones[i].n > from; i-- {
		if _, back := o.items[o.tombstones[i].key]; !back {
			resp.Deletes = append(resp.Deletes, o.tombstones[i].key)
		}
	}
	return resp
}

func (o *Owner[M]) tell(ctx context.Context, key string, revision Revision) {
	if o.announce != nil {
		o.announce.Announce(ctx, o.name, key, revision)
	}
}
