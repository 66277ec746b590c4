// SPDX-License-Identifier: Apache-2.0

// Package fuzzing holds what fuzz tests share.
package fuzzing

import (
	"runtime/metrics"
	"testing"
)

// Allocates calls f and fails t when f allocated more than limit bytes in all,
// whether or not they were freed again. A parser of hostile input passes a
// constant, or a multiple of the input's length:
//
//	fuzzing.Allocates(t, 64<<10+100*uint64(len(data)), func() { _, err = Parse(data) })
//
// The count is the process's: other goroutines that allocate meanwhile are
// counted too, and small objects are counted a span (some KiB) at a time. A
// useful limit is therefore at least 64 KiB.
func Allocates(t testing.TB, limit uint64, f func()) {
	t.Helper()
	before := allocated()
	f()
	if got := allocated() - before; got > limit {
		t.Errorf("%d bytes allocated, at most %d expected", got, limit)
	}
}

// allocated is the sum of all allocations of the process so far, in bytes.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
