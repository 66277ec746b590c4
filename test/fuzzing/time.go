// SPDX-License-Identifier: Apache-2.0

package fuzzing

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Spends calls f and fails t when f took more than limit of processor time, which other
// processes do not change. A parser that is linear takes milliseconds for a megabyte; one
// that is quadratic, minutes. What other goroutines of f do is not counted.
func Spends(t testing.TB, limit time.Duration, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := spent(t)
	f()
	if got := spent(t) - before; got > limit {
		t.Errorf("%s of processor time, at most %s expected", got, limit)
	}
}

// spent is the processor time of the calling thread so far.
func spent(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
