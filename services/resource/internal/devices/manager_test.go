// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sextant-node/sextant/services/resource/internal/devices/checkpoint"
)

// TestAPluginThatNeverComesBack is waited for as long as Grace, and not longer; its devices
// are capacity as long as Confirm.
func TestAPluginThatNeverComesBack(t *testing.T) {
	dir, start := t.TempDir(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data, err := checkpoint.Marshal(nil, map[string][]string{name: {"a"}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, checkpoint.Name), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	now := start
	m := New(Config{Dir: dir, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	confirm, end := start.Add(Confirm), start.Add(Grace)
	for _, step := range []struct {
		at, next time.Time
		state    State
		capacity int
	}{
		{confirm.Add(-time.Nanosecond), confirm, Away, 1},
		{confirm, end, Away, 0},
		{end.Add(-time.Nanosecond), end, Away, 0},
		{end, time.Time{}, Gone, 0},
	} {
		now = step.at
		next := m.Expire()
		r := m.Inventory()[name]
		if capacity, allocatable := r.Counts(); !next.Equal(step.next) || r.State != step.state || capacity != step.capacity || allocatable != 0 {
			t.Errorf("at %s: next at %s, %s, capacity %d, allocatable %d; want %+v", now, next, r.State, capacity, allocatable, step)
		}
	}
}

// TestAPluginThatNeverLists: its resource is there, with no devices, as of a kubelet.
func TestAPluginThatNeverLists(t *testing.T) {
	m := New(Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Now: time.Now, Changed: func() {}})
	p := &plugin{resource: name}
	m.plugins[name] = p
	m.ended(p, errors.New("ListAndWatch failed"))
	r := m.Inventory()[name]
	if r == nil {
		t.Fatal("the resource is not there")
	}
	if capacity, allocatable := r.Counts(); r.State != Away || capacity != 0 || allocatable != 0 {
		t.Errorf("%s, capacity %d, allocatable %d", r.State, capacity, allocatable)
	}
}
