// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestTheLockFile is held by one agent at a time, and the one that watches it ends when
// another comes.
func TestTheLockFile(t *testing.T) {
	path, log := filepath.Join(t.TempDir(), "lock"), slog.New(slog.DiscardHandler)
	first, err := acquireLock(t.Context(), path, log)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := acquireLock(ended, path, log); !errors.Is(err, context.Canceled) {
		t.Errorf("a second agent was not made to wait: %v", err)
	}
	second := make(chan error, 1)
	go func() {
		release, err := acquireLock(t.Context(), path, log)
		if err == nil {
			release()
		}
		second <- err
	}()
	first()
	if err := <-second; err != nil {
		t.Errorf("the lock was not handed on: %v", err)
	}
	if _, err := acquireLock(t.Context(), filepath.Join(path, "below"), log); err == nil {
		t.Error("a lock in no folder was taken")
	}
}

// TestContention: who opens or deletes the file ends the node, and who only looks does not.
func TestContention(t *testing.T) {
	for name, contend := range map[string]func(path string) error{
		"opened":  func(path string) error { _, err := os.ReadFile(path); return err },
		"deleted": os.Remove,
		"":        func(path string) error { _, err := os.Stat(path); return err },
	} {
		path := filepath.Join(t.TempDir(), "lock")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		task, err := watchLock(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := contend(path); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if name == "" {
			cancel()
		}
		if err := task(ctx); errors.Is(err, errContended) != (name != "") {
			t.Errorf("%q: %v", name, err)
		}
		cancel()
	}
	if _, err := watchLock(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is watched")
	}
}
