package service

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// collectAt is the growth of the heap, in percent of what is in use, at which
	// garbage is collected. Go's own 100 keeps as much garbage as there are
	// values; services are many, mostly idle, and their heaps small.
	collectAt = 50
	// tidyPeriod is how often a process looks at what it keeps.
	tidyPeriod = 10 * time.Second
	// tidyAgain is the least time between two collections for tidiness' sake, as
	// Go's own between two that nothing but time calls for.
	tidyAgain = 2 * time.Minute
	// worthIt is how much must come back for a collection to be worth its time.
	worthIt = 1 << 20
	// busy is how much a process allocates in a tidyPeriod when it has work to do.
	busy = 1 << 20
)

// Tidy keeps a process as small as what it works on: when work has come to a
// rest, garbage is collected and unused memory goes back to the system at once,
// which Go's runtime would take its time for and do in part. It ends with ctx.
func Tidy(ctx context.Context) error {
	if os.Getenv("GOGC") == "" { // an operator's word counts
		debug.SetGCPercent(collectAt)
	}
	tick := time.NewTicker(tidyPeriod)
	defer tick.Stop()
	t := tidier{working: true}
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if t.due(now, readHeap()) {
				debug.FreeOSMemory()
			}
		}
	}
}

// heap is what the runtime says of its memory, in bytes.
type heap struct {
	allocated uint64 // since the start
	spare     uint64 // free, garbage or unused, and not given back
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	live, objects := samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return heap{samples[0].Value.Uint64(), samples[3].Value.Uint64() + objects - min(live, objects)}
}

// tidier decides when to collect.
type tidier struct {
	allocated uint64    // at the last look
	working   bool      // there was work since the last collection
	last      time.Time // collection
}

// due tells whether to collect now: at the first rest after work, else when
// enough has gathered and the last time is long ago.
func (t *tidier) due(now time.Time, h heap) bool {
	fresh := h.allocated - t.allocated
	t.allocated = h.allocated
	if fresh >= busy {
		t.working = true
		return false
	}
	if h.spare < worthIt || !t.working && now.Sub(t.last) < tidyAgain {
		return false
	}
	t.working, t.last = false, now
	return true
}
