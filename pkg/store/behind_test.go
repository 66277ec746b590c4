// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sextant-node/sextant/pkg/store"
)

// TestBehind: the newest write of a key is made, together with others; one that fails is
// tried again although nothing else is to be written.
func TestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		full, made := true, []string{}
		b := store.NewBehind(store.BehindConfig{Delay: time.Second, Log: slog.New(slog.DiscardHandler)})
		write := func(what string) store.Write {
			return func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				if full {
					return errors.New("no space left on device")
				}
				made = append(made, what)
				return nil
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		b.Put("a", write("old"))
		b.Put("a", write("new"))
		<-time.After(time.Second)
		synctest.Wait()
		if b.Unwritten() != 1 {
			t.Errorf("%d wait, one was refused", b.Unwritten())
		}
		mu.Lock()
		full = false
		mu.Unlock()
		<-time.After(time.Minute)
		synctest.Wait()
		if len(made) != 1 || made[0] != "new" || b.Unwritten() != 0 {
			t.Errorf("made %q, %d wait", made, b.Unwritten())
		}
		b.Put("b", write("last"))
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(made) != 2 {
			t.Errorf("made %q, not what was put before the end", made)
		}
	})
}
