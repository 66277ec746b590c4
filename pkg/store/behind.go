// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sextant-node/sextant/pkg/signal"
)

const (
	// atOnce writes are made at the same time; they share a disk flush.
	atOnce = 32
	// again is how long after a failed write it is tried again.
	again = 5 * time.Second
)

// BehindConfig is how a Behind writes.
type BehindConfig struct {
	// Delay is how long writes are gathered, to be made together.
	Delay time.Duration
	// Before, if any, is called before writes are made, of which none is after its error.
	Before func() error
	Log    *slog.Logger
}

// Behind makes writes in the background: of each key the newest only, many at the same
// time, nobody waits for the disk. A write that fails is tried again, unless there is a
// newer one of its key. Safe for concurrent use; make it with NewBehind.
type Behind struct {
	cfg  BehindConfig
	wake signal.Signal

	// order is held by the one that writes, so that the writes of a key reach the
	// store in the order in which they were asked for.
	order sync.Mutex

	mu      sync.Mutex
	pending map[string]Write
	writing int
}

// Write puts or deletes a record.
type Write func(context.Context) error

// NewBehind makes a Behind; Run has it write.
func NewBehind(cfg BehindConfig) *Behind {
	return &Behind{cfg: cfg, wake: signal.New(), pending: map[string]Write{}}
}

// Put has a write made soon; key names the record among all that this Behind writes.
func (b *Behind) Put(key string, write Write) {
	b.mu.Lock()
	b.pending[key] = write
	b.mu.Unlock()
	b.wake.Send()
}

// Now makes a write before it returns. After an error it is made as soon as that can be done.
func (b *Behind) Now(ctx context.Context, key string, write Write) error {
	b.order.Lock()
	defer b.order.Unlock()
	b.mu.Lock()
	delete(b.pending, key) // it is older
	b.mu.Unlock()
	err := b.before()
	if err == nil {
		err = write(ctx)
	}
	if err != nil {
		b.retry(key, write)
		b.wake.Send()
	}
	return err
}

// Alone does something while nothing is written.
func (b *Behind) Alone(do func() error) error {
	b.order.Lock()
	defer b.order.Unlock()
	return do()
}

// Unwritten is how many writes are not made yet.
func (b *Behind) Unwritten() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending) + b.writing
}

// Run writes until ctx ends, and once more then. Before is called soon after the start, also
// when nothing was put.
func (b *Behind) Run(ctx context.Context) error {
	b.wake.Send()
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			b.report(b.Flush(context.WithoutCancel(ctx)))
			return nil
		case <-b.wake:
			select {
			case <-ctx.Done():
				continue
			case <-time.After(b.cfg.Delay):
			}
		case <-retry:
		}
		retry = nil
		if err := b.Flush(ctx); err != nil {
			b.report(err)
			retry = time.After(again)
		}
	}
}

func (b *Behind) report(err error) {
	if err != nil {
		b.cfg.Log.Error("state not kept", "records", b.Unwritten(), "error", err.Error())
	}
}

// Flush makes the writes that wait. What could not be written waits on, unless it was
// replaced meanwhile.
func (b *Behind) Flush(ctx context.Context) error {
	b.order.Lock()
	defer b.order.Unlock()
	if err := b.before(); err != nil {
		return err
	}
	b.mu.Lock()
	pending := b.pending
	b.pending = map[string]Write{}
	b.writing = len(pending)
	b.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for key, write := range pending {
		group.Go(func() error {
			err := write(ctx)
			if err != nil {
				b.retry(key, write)
			}
			b.mu.Lock()
			b.writing--
			b.mu.Unlock()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func (b *Behind) before() error {
	if b.cfg.Before == nil {
		return nil
	}
	return b.cfg.Before()
}

// retry has a write that failed wait again, unless there is a newer one.
func (b *Behind) retry(key string, write Write) {
	b.mu.Lock()
	if _, newer := b.pending[key]; !newer {
		b.pending[key] = write
	}
	b.mu.Unlock()
}
