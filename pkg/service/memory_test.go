package service

import (
	"runtime/debug"
	"testing"
	"time"
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
		if got := decide.due(start.Add(step.after), heap{step.allocated, step.spare}); got != step.want {
			t.Errorf("step %d: collect %v, want %v: %s", i, got, step.want, step.why)
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
