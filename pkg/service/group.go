// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Task is one long-running part of a process.
type Task struct {
	Name string
	// Run returns nil when ctx ends; returning earlier, or an error, stops all.
	Run func(ctx context.Context) error
}

// errStopped is the cause when a task returns nil before its time.
var errStopped = errors.New("returned early")

// RunTasks runs tasks until one fails or ctx ends. It returns the first cause,
// nil for an orderly end. After that the others have grace to return; those
// that do not are named in the error and left behind.
func RunTasks(ctx context.Context, grace time.Duration, tasks ...Task) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	running := map[string]int{}
	done := make(chan struct{})
	var group sync.WaitGroup
	for _, t := range tasks {
		mu.Lock()
		running[t.Name]++
		mu.Unlock()
		group.Go(func() {
			err := runTask(ctx, t)
			mu.Lock()
			if running[t.Name]--; running[t.Name] == 0 {
				delete(running, t.Name)
			}
			mu.Unlock()
			switch {
			case err != nil:
				cancel(fmt.Errorf("%s: %w", t.Name, err))
			case ctx.Err() == nil:
				cancel(fmt.Errorf("%s: %w", t.Name, errStopped))
			}
		})
	}
	go func() { group.Wait(); close(done) }()

	<-ctx.Done()
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		cause = nil
	}
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-done:
		return cause
	case <-limit.C:
		mu.Lock()
		defer mu.Unlock()
		return errors.Join(cause, fmt.Errorf("still running after %s: %v", grace, slices.Sorted(maps.Keys(running))))
	}
}

func runTask(ctx context.Context, t Task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return t.Run(ctx)
}

// Again runs a server, and once more a second after it has ended, until ctx ends; why it
// failed is logged. It runs once whatever ctx is: what a server finds or makes when it begins
// is there then.
func Again(ctx context.Context, log *slog.Logger, failed string, serve func(context.Context) error) error {
	for {
		if err := serve(ctx); err != nil {
			log.Error(failed, KeyError, err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}
