// SPDX-License-Identifier: Apache-2.0

package fuzzing

import (
	"fmt"
	"testing"
	"time"
)

// failures records what a test under test reports.
type failures struct {
	testing.TB
	reports []string
}

func (f *failures) Helper() {}
func (f *failures) Errorf(format string, a ...any) {
	f.reports = append(f.reports, fmt.Sprintf(format, a...))
}

var sink [][]byte

func TestAllocates(t *testing.T) {
	for _, c := range []struct {
		name    string
		objects int
		size    int
		limit   uint64
		fails   bool
	}{
		{"nothing", 0, 0, 64 << 10, false},
		{"one large object below the limit", 1, 1 << 20, 2 << 20, false},
		{"one large object above the limit", 1, 4 << 20, 2 << 20, true},
		{"small objects below the limit", 1000, 512, 1 << 20, false},
		{"small objects above the limit", 10000, 512, 1 << 20, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := &failures{TB: t}
			Allocates(seen, c.limit, func() {
				for range c.objects {
					sink = append(sink, make([]byte, c.size))
				}
			})
			sink = nil
			if (len(seen.reports) > 0) != c.fails {
				t.Errorf("reports %q", seen.reports)
			}
		})
	}
}

// TestAllocatesBesideOthers: what another goroutine allocates during a call is not held
// against it.
func TestAllocatesBesideOthers(t *testing.T) {
	seen, calls := &failures{TB: t}, 0
	Allocates(seen, 1<<20, func() {
		if calls++; calls == 1 {
			done := make(chan []byte)
			go func() { done <- make([]byte, 4<<20) }()
			sink = append(sink, <-done)
		}
	})
	sink = nil
	if len(seen.reports) > 0 || calls != 2 {
		t.Errorf("reports %q after %d calls", seen.reports, calls)
	}
}

func TestSpends(t *testing.T) {
	for _, c := range []struct {
		name  string
		work  time.Duration
		limit time.Duration
		fails bool
	}{
		{"nothing", 0, 10 * time.Second, false},
		{"work above the limit", 20 * time.Millisecond, 10 * time.Millisecond, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := &failures{TB: t}
			Spends(seen, c.limit, func() {
				for start := spent(t); spent(t)-start < c.work; {
				}
			})
			if (len(seen.reports) > 0) != c.fails {
				t.Errorf("reports %q", seen.reports)
			}
		})
	}
}
