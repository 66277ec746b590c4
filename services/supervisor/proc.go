// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTicks is USER_HZ, which Linux fixes at 100 for what /proc shows.
const clockTicks = 100

type procStat struct {
	state string
	cpu   time.Duration
	// start is when the process began, in ticks since the boot.
	start string
}

// readStat reads /proc/<pid>/stat (proc(5)).
func readStat(pid int) (procStat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	// The command name is in parentheses and may hold spaces.
	_, rest, ok := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return procStat{}, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return procStat{}, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return procStat{}, err
	}
	return procStat{state: fields[0], cpu: time.Duration(user+system) * (time.Second / clockTicks), start: fields[19]}, nil
}

// CPU is the processor time a process has used.
func CPU(pid int) (time.Duration, error) {
	st, err := readStat(pid)
	return st.cpu, err
}
