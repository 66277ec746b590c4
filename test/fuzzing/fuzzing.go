// SPDX-License-Identifier: Apache-2.0

// Package fuzzing holds what fuzz tests share.
package fuzzing

import (
	"math"
	"runtime/metrics"
	"testing"
)

// Allocates calls f and fails t when f allocated more than limit bytes in all,
// whether or not they were freed again. A parser of hostile input passes a
// constant, or a multiple of the input's length:
//
//	fuzzing.Allocates(t, 64<<10+100*uint64(len(data)), func() { _, err = Parse(data) })
//
// The count is the process's. Small objects are counted a span (some KiB) at a
// time, so a useful limit is at least 64 KiB. What other goroutines allocate
// meanwhile is counted too, and can only add: a count above limit is therefore
// taken again, and the least of three counts. f must do the same in each call.
func Allocates(t testing.TB, limit uint64, f func()) {
	t.Helper()
	least := uint64(math.MaxUint64)
	for range 3 {
		before := allocated()
		f()
		if least = min(least, allocated()-before); least <= limit {
			return
		}
	}
	t.Errorf("%d bytes allocated, at most %d expected", least, limit)
}

// allocated is the sum of all allocations of the process so far, in bytes.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
