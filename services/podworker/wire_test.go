// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"sync"

	"github.com/sextant-node/sextant/pkg/feed"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// busWire carries announcements inside the process, and tells of every one.
type busWire struct {
	mu      sync.Mutex
	held    map[string]chan struct{} // feeds that are not pulled until it is closed
	looks   map[string]map[int]func(feed.Revision)
	serial  int
	changed chan struct{}
	lost    map[string]bool // feeds whose announcements do not arrive
}

func (b *busWire) Announce(_ context.Context, name, _ string, revision feed.Revision) {
	b.mu.Lock()
	var looks []func(feed.Revision)
	for _, look := range b.looks[name] {
		if !b.lost[name] {
			looks = append(looks, look)
		}
	}
	b.mu.Unlock()
	for _, look := range looks {
		look(revision)
	}
	b.tell()
}

func (b *busWire) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *busWire) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *busWire) Listen(name string, look func(feed.Revision)) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looks[name] == nil {
		b.looks[name] = map[int]func(feed.Revision){}
	}
	b.serial++
	id := b.serial
	b.looks[name][id] = look
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.looks[name], id)
	}
}

func (b *busWire) Connected() bool { return true }

// hold keeps the replicas of a feed from coming further until release is called.
func (b *busWire) hold(feed string) (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gate := make(chan struct{})
	if b.held == nil {
		b.held = map[string]chan struct{}{}
	}
	b.held[feed] = gate
	return sync.OnceFunc(func() {
		b.mu.Lock()
		delete(b.held, feed)
		b.mu.Unlock()
		close(gate)
	})
}

// puller is another puller behind what hold holds.
func (b *busWire) puller(next feed.Puller) feed.Puller { return gatedPuller{b, next} }

type gatedPuller struct {
	wire *busWire
	next feed.Puller
}

// Pull implements feed.Puller.
func (p gatedPuller) Pull(ctx context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error) {
	p.wire.mu.Lock()
	gate := p.wire.held[req.GetFeed()]
	p.wire.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return p.next.Pull(ctx, req)
}
