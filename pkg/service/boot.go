// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// StartedHeader is in every answer of /metrics on a debug socket: how long after the boot
// the process started, in nanoseconds. process_start_time_seconds of a process moves when
// the clock is set.
const StartedHeader = "Sextant-Started"

// SinceBoot is how long ago the machine booted, by CLOCK_BOOTTIME, which steps of the wall clock do not change.
func SinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // no kernel that runs this has none
	}
	return time.Duration(now.Nano())
}

// BootID is the kernel's ID of this boot of the machine.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot ID: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// AfterBoot is how long after the boot the process started.
func (k *Kit) AfterBoot() time.Duration { return k.afterBoot }

// withStarted adds StartedHeader to answers.
func (k *Kit) withStarted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(StartedHeader, strconv.FormatInt(int64(k.afterBoot), 10))
		next.ServeHTTP(w, r)
	})
}
