// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/signal"
)

func TestTidierWaitsForRest(t *testing.T) {
	const mib = 1 << 20
	start := time.Unix(1000, 0)
	decide := tidier{working: true}
	for i, step := range []struct {
		after     time.Duration
		allocated uint64
		spare     uint64
		want      bool
		why       string
	}{
		{10 * time.Second, 8 * mib, 4 * mib, false, "it has just started and still works"},
		{20 * time.Second, 8*mib + 1000, 4 * mib, true, "the start is over"},
		{30 * time.Second, 8*mib + 2000, 2 * mib, false, "it was done a moment ago"},
		{130 * time.Second, 9 * mib, 2 * mib, false, "not two minutes ago"},
		{140 * time.Second, 9*mib + 1000, 2 * mib, true, "enough has gathered in two minutes"},
		{300 * time.Second, 9*mib + 2000, mib / 2, false, "it is not worth it"},
		{310 * time.Second, 20 * mib, 9 * mib, false, "work"},
		{320 * time.Second, 31 * mib, 9 * mib, false, "more work"},
		{330 * time.Second, 31*mib + 1000, 9 * mib, true, "the work is done"},
	} {
		if got := decide.due(start.Add(step.after), heap{allocated: step.allocated, spare: step.spare}); got != step.want {
			t.Errorf("step %d: collect %v, want %v: %s", i, got, step.want, step.why)
		}
	}
}

func TestTidierKnowsRestOfManyPods(t *testing.T) {
	const mib = 1 << 20
	now := time.Unix(1000, 0)
	decide := tidier{working: true}
	h := heap{live: 9 * mib, spare: 4 * mib}
	for i, step := range []struct {
		fresh uint64
		want  bool
		why   string
	}{
		{9 * mib, false, "it allocates as much as it has in use: work"},
		{3 * mib, true, "it looks at the pods it has"},
		{3 * mib, false, "it was done a moment ago"},
	} {
		now, h.allocated = now.Add(10*time.Second), h.allocated+step.fresh
		if got := decide.due(now, h); got != step.want {
			t.Errorf("step %d: collect %v, want %v: %s", i, got, step.want, step.why)
		}
	}
	if got := decide.growth(h.live); got != collectAt {
		t.Errorf("at rest the heap may grow by %d percent, want %d", got, collectAt)
	}
}

// TestTidierSeesWorkBegin: Go's own collections come one after the other when work begins, long
// before the heap is checked.
func TestTidierSeesWorkBegin(t *testing.T) {
	const mib = 1 << 20
	start := time.Unix(1000, 0)
	decide := tidier{}
	for i, step := range []struct {
		after       time.Duration
		collections uint64
		want        bool
		why         string
	}{
		{0, 1, false, "the first"},
		{2 * time.Minute, 2, false, "time called for it"},
		{2*time.Minute + time.Second, 2, false, "it was due for tidiness' sake"},
		{2*time.Minute + 5*time.Second, 3, false, "five seconds later"},
		{2*time.Minute + 6*time.Second, 4, true, "a second later"},
	} {
		decide.collected(start.Add(step.after), step.collections)
		if decide.working != step.want {
			t.Errorf("step %d: there is work: %v, want %v: %s", i, decide.working, step.want, step.why)
		}
	}
	if got := decide.growth(4 * mib); got != mostAt {
		t.Errorf("the heap may grow by %d percent, want %d", got, mostAt)
	}
	several := tidier{collections: 4, lastCollected: start}
	if several.collected(start.Add(time.Minute), 6); !several.working {
		t.Error("two collections at once are no work")
	}
}

// TestCollectionsAreSeen: each of them, one after the other.
func TestCollectionsAreSeen(t *testing.T) {
	collected := signal.New()
	watchCollections(t.Context(), collected)
	for range 3 {
		runtime.GC()
		<-collected
	}
}

func TestTidyBoundsProcessors(t *testing.T) {
	had := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(had) })
	percent := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	ended, end := context.WithCancel(t.Context())
	end()
	for _, step := range []struct {
		has, want int
		setting   string
	}{{32, processors, ""}, {2, 2, ""}, {32, 32, "32"}} {
		runtime.GOMAXPROCS(step.has)
		t.Setenv("GOMAXPROCS", step.setting)
		if err := Tidy(ended); err != nil {
			t.Fatal(err)
		}
		if got := runtime.GOMAXPROCS(0); got != step.want {
			t.Errorf("%d processors, GOMAXPROCS=%q: the process uses %d, want %d", step.has, step.setting, got, step.want)
		}
	}
}

func TestGrowth(t *testing.T) {
	const mib = 1 << 20
	for live, want := range map[uint64]int{0: 300, 4 * mib: 300, 8 * mib: 200, 16 * mib: 100, 200 * mib: 50} {
		at, rest := tidier{working: true}, tidier{}
		if got := at.growth(live); got != want {
			t.Errorf("%d MiB in use: %d percent, want %d", live/mib, got, want)
		}
		if got := rest.growth(live); got != collectAt {
			t.Errorf("%d MiB in use at rest: %d percent, want %d", live/mib, got, collectAt)
		}
	}
}

var kept []byte

func TestReadHeap(t *testing.T) {
	// Else a collection that the 16 MiB call for may come before they are garbage,
	// or right after, and give them back.
	percent := debug.SetGCPercent(-1)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	debug.FreeOSMemory()
	before := readHeap()
	kept = make([]byte, 16<<20)
	held := readHeap()
	if held.allocated-before.allocated < 16<<20 {
		t.Errorf("16 MiB more, and allocated grew by %d", held.allocated-before.allocated)
	}
	kept = nil
	if spare := readHeap().spare; spare < 15<<20 {
		t.Errorf("16 MiB of garbage, and %d are spare", spare)
	}
	debug.FreeOSMemory()
	if spare := readHeap().spare; spare > 8<<20 {
		t.Errorf("after a collection %d bytes are spare", spare)
	}
}
