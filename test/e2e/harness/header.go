// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Header is the first line of a file of results: the commit that was tested, when it was
// begun, and the machine.
//
//	commit 6eca5ee0e010-dirty, 2026-11-23T06:40:12Z, 2 cores, Linux 6.18.44, 23 GiB memory, load 0.41
//
// "-dirty" says that tracked files were changed. The load is the mean of the minute
// before the lab was opened. test/rules reads this line.
func (l *Lab) Header(t testing.TB) string {
	t.Helper()
	var name unix.Utsname
	var info unix.Sysinfo_t
	if err := errors.Join(unix.Uname(&name), unix.Sysinfo(&info)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("commit %s, %s, %d cores, Linux %s, %.0f GiB memory, load %.2f\n",
		l.Commit(), l.opened.UTC().Format(time.RFC3339), runtime.NumCPU(), unix.ByteSliceToString(name.Release[:]),
		float64(info.Totalram)*float64(info.Unit)/(1<<30), l.load)
}

// Commit is that of the source when the lab was opened, with "-dirty" if tracked files were
// changed; "unknown" for a source without its repository.
func (l *Lab) Commit() string { return l.commit }

// loadNow is the mean load of the last minute.
func loadNow() (load float64, err error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	return load, err
}
