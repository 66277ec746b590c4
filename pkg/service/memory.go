// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/sextant-node/sextant/pkg/signal"
)

const (
	// collectAt is the growth of the heap, in percent of what is in use, at which
	// garbage is collected at the latest. Go's own 100 keeps as much garbage as there are
	// values; services are many and mostly idle.
	collectAt = 50
	// room is how much a heap may grow in any case while there is work, and mostAt the most
	// in percent: half of a small heap is garbage in no time, and collecting it is then a
	// fifth of the work. Afterwards it goes back to the system.
	room, mostAt = 16 << 20, 300
	// tidyPeriod is how often a process checks its heap.
	tidyPeriod = 10 * time.Second
	// tidyAgain is the least time between two collections for tidiness' sake, as
	// Go's own between two that nothing but time calls for.
	tidyAgain = 2 * time.Minute
	// soon is how soon after a collection of Go's own the next one comes, at the latest, when
	// work has begun since the heap was checked: half of what is in use was allocated in it.
	soon = 2 * time.Second
	// worthIt is how much must come back for a collection to be worth its time.
	worthIt = 1 << 20
	// busy is how much a process allocates in a tidyPeriod, at the least, when it has work to
	// do: as much as it has in use, but not less than this. What it does at rest, relisting
	// and looking at the pods it has, grows with what it has in use.
	busy = 1 << 20
	// processors are the most that run a process's Go code at a time. For each, Go's runtime
	// keeps memory of every size to hand out: a node of many processors would pay for them
	// in every process, and none has work for so many.
	processors = 4
)

// Tidy keeps a process as small as what it works on: when work has come to a
// rest, garbage is collected and unused memory goes back to the system at once,
// which Go's runtime would take its time for and do in part. It also bounds the processors
// that the process uses. It ends with ctx.
func Tidy(ctx context.Context) error {
	if runtime.GOMAXPROCS(0) > processors && os.Getenv("GOMAXPROCS") == "" { // the operator's setting counts
		runtime.GOMAXPROCS(processors)
	}
	percent := 0
	adjust := func(next int) {
		if next != percent && os.Getenv("GOGC") == "" { // the operator's setting counts
			debug.SetGCPercent(next)
			percent = next
		}
	}
	t := tidier{working: true} // every life begins with work
	adjust(t.growth(0))
	collected := signal.New()
	watchCollections(ctx, collected)
	tick := time.NewTicker(tidyPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-collected:
			h := readHeap()
			t.collected(time.Now(), h.collections)
			adjust(t.growth(h.live))
		case now := <-tick.C:
			h := readHeap()
			if t.due(now, h) {
				debug.FreeOSMemory()
			}
			adjust(t.growth(h.live))
		}
	}
}

// watchCollections signals after each collection of garbage, until ctx ends.
func watchCollections(ctx context.Context, collected signal.Signal) {
	garbage := &struct{ _ *int }{} // until the next collection finds it
	runtime.AddCleanup(garbage, func(ctx context.Context) {
		if ctx.Err() == nil {
			watchCollections(ctx, collected)
			collected.Send()
		}
	}, ctx)
}

// heap is the Go runtime's account of its memory, in bytes.
type heap struct {
	allocated uint64 // since the start
	live      uint64 // in use at the last collection
	spare     uint64 // free, garbage or unused, and not given back
	// collections is how often Go collected garbage of its own accord.
	collections uint64
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/cycles/automatic:gc-cycles"},
	}
	metrics.Read(samples)
	live, objects := samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return heap{samples[0].Value.Uint64(), live, samples[3].Value.Uint64() + objects - min(live, objects), samples[4].Value.Uint64()}
}

// tidier decides when to collect.
type tidier struct {
	allocated uint64    // at the last look
	working   bool      // there was work since the last collection
	last      time.Time // collection
	// collections are Go's own, and when the last of them was.
	collections   uint64
	lastCollected time.Time
}

// collected takes note of a collection. Work that begins is seen by Go's own, which come one
// after the other, long before the heap is checked again.
func (t *tidier) collected(now time.Time, collections uint64) {
	if collections == t.collections {
		return // it was due here
	}
	if now.Sub(t.lastCollected) < soon || collections > t.collections+1 {
		t.working = true
	}
	t.collections, t.lastCollected = collections, now
}

// due reports whether to collect now: at the first rest after work, else when
// enough has gathered and the last time is long ago.
func (t *tidier) due(now time.Time, h heap) bool {
	fresh := h.allocated - t.allocated
	t.allocated = h.allocated
	if fresh >= max(busy, h.live) {
		t.working = true
		return false
	}
	if h.spare < worthIt || !t.working && now.Sub(t.last) < tidyAgain {
		return false
	}
	t.working, t.last = false, now
	return true
}

// growth is by how much, in percent, a heap with so many bytes in use may grow until garbage
// is collected.
func (t *tidier) growth(live uint64) int {
	if !t.working {
		return collectAt
	}
	return int(min(max(collectAt, 100*room/max(live, 1)), mostAt))
}
