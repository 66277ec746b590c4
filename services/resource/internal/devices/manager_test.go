// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/sextant-node/sextant/services/resource/internal/devices/checkpoint"
)

// TestAPluginThatNeverComesBack is waited for as long as Grace, and not longer.
func TestAPluginThatNeverComesBack(t *testing.T) {
	dir, now := t.TempDir(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := checkpoint.Write(filepath.Join(dir, checkpoint.Name), nil, map[string][]string{name: {"a"}}); err != nil {
		t.Fatal(err)
	}
	m := New(Config{Dir: dir, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	end := now.Add(Grace)
	now = end.Add(-time.Nanosecond)
	if next := m.Expire(); !next.Equal(end) || m.Inventory()[name].State != Away {
		t.Errorf("before: next at %s, %s", next, m.Inventory()[name].State)
	}
	now = end
	if next := m.Expire(); !next.IsZero() || m.Inventory()[name].State != Gone {
		t.Errorf("after: next at %s, %s", next, m.Inventory()[name].State)
	}
}
