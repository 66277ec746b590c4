// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Spare reports whether the machine has processors to spare: fewer than two threads for each
// of them run or could. Where that cannot be read it has none.
func Spare() bool {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return false
	}
	n, ok := runnable(string(text))
	return ok && n < 2*runtime.NumCPU()
}

// runnable is how many threads of the machine run or could, by /proc/loadavg (proc_loadavg(5)).
func runnable(loadavg string) (n int, ok bool) {
	fields := strings.Fields(loadavg)
	if len(fields) < 4 {
		return 0, false
	}
	now, _, ok := strings.Cut(fields[3], "/")
	n, err := strconv.Atoi(now)
	return n, ok && err == nil
}
