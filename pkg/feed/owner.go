// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/wire"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// maxTombstones bounds how many deletions an owner remembers; a reader further
// behind gets a snapshot.
const maxTombstones = 1024

// maxPage bounds one answer to a reader that knows pages, in bytes of keys and
// values: the owner's lock is held, and its memory taken, for no more than that.
const maxPage = 8 << 20

// Announcer tells readers that a key changed. Announce must not block; losing an
// announcement is allowed. Connected reports whether announcements travel at
// present.
type Announcer interface {
	Announce(ctx context.Context, feed, key string, revision Revision)
	Connected() bool
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

// Set stores an item and announces it; an equal value is not a change. The
// revision returned holds the value either way. Text that is not UTF-8 does not
// keep an item from changing: what is none of it is replaced (pkg/wire).
func (o *Owner[M]) Set(ctx context.Context, key string, message M) (Revision, error) {
	value, err := wire.Marshal(message)
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

// Amend replaces the value of an item without a new revision: readers that have the item
// keep the value they have, and those that take it from now on, at their start or with its
// next change, get this one. It is for a part of the item that a reader takes once. A
// missing item stays missing.
func (o *Owner[M]) Amend(key string, message M) error {
	value, err := wire.Marshal(message)
	if err != nil {
		return fmt.Errorf("feed %s: item %s: %w", o.name, key, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok := o.items[key]; ok {
		e.Value.(*ownedItem).value = value
	}
	return nil
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

// Changes answers a reader (see feed.proto). Items come in the order of their last
// change, so that one which changes while a reader takes page after page comes on
// a later page; what was deleted comes with the last one.
func (o *Owner[M]) Changes(req *feedv1.ChangesRequest) *feedv1.ChangesResponse {
	announced := o.announce != nil && o.announce.Connected()
	since := RevisionFrom(req.GetSince())
	o.mu.Lock()
	defer o.mu.Unlock()
	resp := &feedv1.ChangesResponse{Revision: o.revision.Proto(), Complete: o.complete, Announced: announced}
	resp.Snapshot = since.Epoch != o.revision.Epoch || since.N < o.floor || since.N > o.revision.N
	from := since.N
	switch {
	case resp.Snapshot:
		from = 0
	case req.GetAfter() > 0:
		from = req.GetAfter()
	}
	o.upserts(resp, from, int(min(req.GetPageBytes(), maxPage)))
	if resp.Snapshot || resp.GetMore() {
		return resp
	}
	for i := len(o.tombstones) - 1; i >= 0 && o.tombstones[i].n > since.N; i-- {
		if _, back := o.items[o.tombstones[i].key]; !back {
			resp.Deletes = append(resp.Deletes, o.tombstones[i].key)
		}
	}
	return resp
}

// upserts adds the items that changed after from, as many as a page of that many
// bytes holds; callers hold Owner.mu.
func (o *Owner[M]) upserts(resp *feedv1.ChangesResponse, from uint64, page int) {
	// The newest changes are at the back: walk only as far as needed.
	first := o.order.Back()
	for e := first; e != nil && e.Value.(*ownedItem).n > from; e = e.Prev() {
		first = e
	}
	size := 0
	for e := first; e != nil; e = e.Next() {
		item := e.Value.(*ownedItem)
		if item.n <= from {
			continue
		}
		size += len(item.key) + len(item.value)
		if resp.More = page > 0 && size > page && len(resp.Upserts) > 0; resp.More {
			return
		}
		resp.Upserts = append(resp.Upserts, &feedv1.Item{Key: item.key, Value: item.value, N: item.n})
	}
}

func (o *Owner[M]) tell(ctx context.Context, key string, revision Revision) {
	if o.announce != nil {
		o.announce.Announce(ctx, o.name, key, revision)
	}
}
