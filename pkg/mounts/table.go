// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Table is the mount table of this process's mount namespace. The kernel takes
// milliseconds to write it out where many pods run, so it is read only when it has
// changed, which poll(2) tells, and those who want it at the same time share a reading.
// The zero value is ready; safe for concurrent use.
type Table struct {
	mu    sync.Mutex
	file  *os.File
	all   []*mountinfo.Info // nil: not read
	began time.Time         // when the last reading began
}

// Now is the table as it is at some moment after the call began, in the kernel's order: a
// mount comes after the one that it is mounted on. Callers do not change it.
func (t *Table) Now() ([]*mountinfo.Info, error) {
	asked := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all != nil && t.began.After(asked) {
		return t.all, nil
	}
	changed, err := t.changed()
	if err == nil && (changed || t.all == nil) {
		t.began, t.all = time.Now(), nil
		if _, err = t.file.Seek(0, io.SeekStart); err == nil {
			t.all, err = mountinfo.GetMountsFromReader(t.file, nil)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("mount table: %w", err)
	}
	return t.all, nil
}

// changed reports whether the table has changed since the call before (proc(5),
// /proc/pid/mounts).
func (t *Table) changed() (bool, error) {
	if t.file == nil {
		// Not by os.Open: Go's own poller would see the changes first.
		fd, err := unix.Open("/proc/thread-self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return false, err
		}
		t.file = os.NewFile(uintptr(fd), "mountinfo")
	}
	fds := []unix.PollFd{{Fd: int32(t.file.Fd()), Events: unix.POLLPRI}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}
