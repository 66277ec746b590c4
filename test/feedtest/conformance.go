// SPDX-License-Identifier: Apache-2.0

// Package feedtest is the one suite that every feed passes: whatever it carries,
// in process or over a socket, with announcements or without. It owns nothing.
package feedtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sextant-node/sextant/pkg/feed"
)

// Subject is one feed on one transport.
type Subject struct {
	// Feed is its name in the house.
	Feed string
	// Message makes an empty message of the feed.
	Message func() proto.Message
	// Start starts an owner with a new epoch, in the place of the former one.
	Start func(t *testing.T, epoch string) *feed.Owner[proto.Message]
	// Puller reaches whichever owner is started.
	Puller feed.Puller
	// Listener may be nil: no announcements.
	Listener feed.Listener
}

// Sample makes the i-th of many different messages of the feed.
func (s Subject) Sample(i int) proto.Message {
	m := s.Message()
	fill(m.ProtoReflect(), fmt.Sprintf("sample %d", i))
	return m
}

// fill sets the first field that can hold a text, or failing that a number.
func fill(m protoreflect.Message, text string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
		case f.IsList() && f.Kind() == protoreflect.MessageKind:
			list := m.Mutable(f).List()
			fill(list.AppendMutable().Message(), text)
			return
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			m.Mutable(f).List().Append(protoreflect.ValueOfString(text))
			return
		case f.IsList():
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(text))
			return
		case f.Kind() == protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes([]byte(text)))
			return
		}
	}
	panic("no field to fill in " + string(m.Descriptor().FullName()))
}

type run struct {
	Subject
	t       *testing.T
	ctx     context.Context
	owner   *feed.Owner[proto.Message]
	replica *feed.Replica[proto.Message]

	mu   sync.Mutex
	told []string
	bare int // calls of the watcher without keys
}

func (s Subject) decode(_ string, value []byte) (proto.Message, error) {
	m := s.Message()
	return m, proto.Unmarshal(value, m)
}

func (s Subject) begin(t *testing.T, since feed.Revision) *run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	r := &run{Subject: s, t: t, ctx: ctx, owner: s.Start(t, "first")}
	r.replica = feed.NewReplica(feed.ReplicaConfig{
		Feed: s.Feed, Puller: s.Puller, Listener: s.Listener, Poll: 5 * time.Millisecond, Safety: time.Hour, Since: since,
	}, s.decode)
	r.replica.Watch(func(keys []string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, keys...)
		if len(keys) == 0 {
			r.bare++
		}
	})
	return r
}

func (r *run) set(key string, i int) {
	r.t.Helper()
	if _, err := r.owner.Set(r.ctx, key, r.Sample(i)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *run) pull() {
	r.t.Helper()
	if err := r.replica.Pull(r.ctx); err != nil {
		r.t.Fatal(err)
	}
}

func (r *run) has(want map[string]int) error {
	items := r.replica.Items()
	if len(items) != len(want) {
		return fmt.Errorf("replica has %d items, want %d", len(items), len(want))
	}
	for key, i := range want {
		if got, ok := items[key]; !ok || !proto.Equal(got, r.Sample(i)) {
			return fmt.Errorf("item %s: %v, want %v", key, got, r.Sample(i))
		}
	}
	return nil
}

func (r *run) want(want map[string]int) {
	r.t.Helper()
	if err := r.has(want); err != nil {
		r.t.Fatal(err)
	}
}

// Conformance runs the suite.
func Conformance(t *testing.T, s Subject) {
	for _, c := range []struct {
		name string
		test func(*run)
	}{
		{"the first pull brings everything", first},
		{"a pull brings what changed", changes},
		{"an equal value is no change", equalValue},
		{"a restarted owner empties no view until it is complete", restart},
		{"a reader too far behind gets it all", farBehind},
		{"a reader from another life of the owner gets it all", stranger},
		{"an item that does not decode keeps its place", refused},
		{"watchers hear of each change once applied", watchers},
		{"watchers are called for completeness, and for a revision alone", furtherOn},
		{"a running replica follows", follows},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(s.begin(t, feed.Revision{})) })
	}
}

func first(r *run) {
	r.set("a", 1)
	r.set("b", 2)
	r.pull()
	r.want(map[string]int{"a": 1, "b": 2})
	if r.replica.Complete() {
		r.t.Error("complete before the owner said so")
	}
	r.owner.SetComplete(r.ctx, true)
	r.pull()
	if !r.replica.Complete() || !r.replica.Synced() {
		r.t.Error("not complete after the owner said so")
	}
}

func changes(r *run) {
	r.set("a", 1)
	r.set("b", 2)
	r.pull()
	r.set("b", 3)
	r.set("c", 4)
	r.owner.Delete(r.ctx, "a")
	r.owner.Delete(r.ctx, "never")
	revision, _, _ := r.owner.State()
	if r.replica.At(revision) {
		r.t.Error("replica claims a revision it has not pulled")
	}
	r.pull()
	r.want(map[string]int{"b": 3, "c": 4})
	if !r.replica.At(revision) {
		r.t.Error("replica denies a revision it has pulled")
	}
	r.set("a", 5) // deleted, and back
	r.pull()
	r.want(map[string]int{"a": 5, "b": 3, "c": 4})
}

func equalValue(r *run) {
	r.set("a", 1)
	before, _, _ := r.owner.State()
	r.set("a", 1)
	if after, _, _ := r.owner.State(); after != before {
		r.t.Errorf("revision %v after an equal value, was %v", after, before)
	}
}

func restart(r *run) {
	r.set("a", 1)
	r.set("b", 2)
	r.owner.SetComplete(r.ctx, true)
	r.pull()
	r.owner = r.Start(r.t, "second")
	r.set("b", 3)
	r.pull()
	r.want(map[string]int{"a": 1, "b": 3})
	if r.replica.Complete() {
		r.t.Error("complete though the new owner is not")
	}
	r.owner.Delete(r.ctx, "b")
	r.pull()
	r.want(map[string]int{"a": 1})
	r.set("c", 4)
	r.owner.SetComplete(r.ctx, true)
	r.pull()
	r.want(map[string]int{"c": 4})
}

func farBehind(r *run) {
	r.set("keep", 1)
	r.pull()
	for i := range 1200 { // more deletions than an owner remembers
		key := fmt.Sprintf("k%d", i)
		r.set(key, i)
		if i == 10 {
			r.pull()
		}
		r.owner.Delete(r.ctx, key)
	}
	r.pull()
	r.want(map[string]int{"keep": 1})
}

func stranger(r *run) {
	r.set("a", 1)
	again := r.begin(r.t, feed.Revision{Epoch: "long ago", N: 77})
	again.set("b", 2)
	again.pull()
	again.want(map[string]int{"b": 2})
}

func refused(r *run) {
	r.set("a", 1)
	r.set("b", 2)
	r.owner.SetComplete(r.ctx, true)
	bad := r.Sample(3)
	picky := feed.NewReplica(feed.ReplicaConfig{Feed: r.Feed, Puller: r.Puller}, func(key string, value []byte) (proto.Message, error) {
		m, err := r.decode(key, value)
		if proto.Equal(m, bad) {
			return nil, errors.New("not this one")
		}
		return m, err
	})
	r.replica = picky
	r.pull()
	r.set("a", 3)
	r.pull()
	r.want(map[string]int{"a": 1, "b": 2})
	knows := func(key string) bool {
		_, _, known := r.replica.Lookup(key)
		return known
	}
	if m := r.replica; m.Complete() || knows("a") || !knows("b") || !knows("never") || !m.Listed() || !m.Current("a") {
		r.t.Errorf("with an item that was not understood: complete %v, listed %v, a known %v, listed %v, b known %v, another known %v",
			m.Complete(), m.Listed(), knows("a"), m.Current("a"), knows("b"), knows("never"))
	}
	r.set("a", 4)
	r.pull()
	r.want(map[string]int{"a": 4, "b": 2})
	if !r.replica.Complete() || !knows("a") {
		r.t.Error("not complete though all is understood")
	}
	r.set("c", 3)
	r.pull()
	if knows("c") || !r.replica.Current("c") {
		r.t.Error("an item that was never understood is taken for one that does not exist")
	}
	r.owner.Delete(r.ctx, "c")
	r.pull()
	if !r.replica.Complete() || !knows("c") || r.replica.Current("c") {
		r.t.Error("an item that was never understood stays when it is gone")
	}
}

func watchers(r *run) {
	r.set("a", 1)
	r.pull()
	r.set("b", 2)
	r.owner.Delete(r.ctx, "a")
	r.pull()
	r.pull()
	want := []string{"a", "b", "a"}
	if fmt.Sprint(r.told) != fmt.Sprint(want) {
		r.t.Errorf("told %v, want %v", r.told, want)
	}
}

// furtherOn: readers wait for completeness, and for a revision that a command answered
// with; both may come beside changes of other items, or alone.
func furtherOn(r *run) {
	bare := func(what string, happen func(), keys ...string) {
		r.t.Helper()
		r.pull()
		r.told, r.bare = nil, 0
		happen()
		r.pull()
		if r.bare != 1 || fmt.Sprint(r.told) != fmt.Sprint(keys) {
			r.t.Errorf("%s: %d calls without keys, and the keys %v, want one and %v", what, r.bare, r.told, keys)
		}
	}
	r.set("a", 1)
	bare("complete, with another item", func() { r.set("b", 2); r.owner.SetComplete(r.ctx, true) }, "b")
	bare("incomplete", func() { r.owner.SetComplete(r.ctx, false) })
	bare("changed, and back", func() { r.set("a", 2); r.set("a", 1) })
	bare("never there", func() { r.set("c", 3); r.owner.Delete(r.ctx, "c") })
	bare("another epoch, nothing new", func() { r.owner = r.Start(r.t, "second"); r.set("a", 1); r.set("b", 2) }, "a", "b")
	bare("another epoch, not all of it", func() { r.owner = r.Start(r.t, "third"); r.set("a", 1) }, "a")
	r.told, r.bare = nil, 0
	r.set("b", 2)
	r.pull()
	if r.bare != 0 || fmt.Sprint(r.told) != "[b]" {
		r.t.Errorf("the rest of the epoch, nothing new: %d calls without keys, and the keys %v, want none and b", r.bare, r.told)
	}
}

func follows(r *run) {
	changed := make(chan struct{}, 1)
	r.replica.Watch(func([]string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.replica.Run(ctx) }()
	until := func(want map[string]int) {
		r.t.Helper()
		for {
			err := r.has(want)
			if err == nil {
				return
			}
			select {
			case <-r.ctx.Done():
				r.t.Fatal(err)
			case <-changed:
			}
		}
	}
	r.set("a", 1)
	until(map[string]int{"a": 1})
	r.set("b", 2)
	until(map[string]int{"a": 1, "b": 2})
	r.owner = r.Start(r.t, "second")
	r.set("c", 3)
	r.owner.SetComplete(r.ctx, true)
	if r.Listener != nil {
		r.replica.Look() // as a reconnect does: the new owner's first words may be lost
	}
	until(map[string]int{"c": 3})
	cancel()
	if err := <-ended; err != nil {
		r.t.Errorf("replica ended: %v", err)
	}
}
