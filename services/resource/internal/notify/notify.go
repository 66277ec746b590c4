// SPDX-License-Identifier: Apache-2.0

// Package notify has the kernel say at once that memory gets short in a cgroup, so that
// nothing waits for the next look (kernelMemcgNotification).
//
// On cgroup version 1 it is a threshold of memory.usage_in_bytes, set through
// cgroup.event_control, which counts up an eventfd. On version 2 it is a change of
// memory.events: the cgroup is at its limit; the root cgroup has no such file there. A
// notification says no more than that a look is worth it.
package notify

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// Pause bounds how often a notifier calls, and one that takes the place of another: usage may
// go to and fro across a threshold.
const Pause = 500 * time.Millisecond

// Threshold of a cgroup.
type Threshold struct {
	// Cgroup is its path below the mount of the hierarchy, "/" for the root.
	Cgroup string
	// Usage in bytes.
	Usage int64
	// Reached: usage was at or above Usage when the threshold was chosen. If it was below, and is
	// at or above by the time the threshold is registered, that counts as a crossing too (on
	// version 1).
	Reached bool
}

// Notifier calls when a threshold is crossed, until it is closed.
type Notifier struct{ close func() error }

// New sets thresholds on the machine below root. version is that of cgroups. call must not
// block; it is called from a goroutine of the notifier's.
func New(root string, version uint32, thresholds []Threshold, call func()) (*Notifier, error) {
	if version == 2 {
		return events(filepath.Join(cmp.Or(root, "/"), "sys/fs/cgroup"), thresholds, call)
	}
	return counter(filepath.Join(cmp.Or(root, "/"), "sys/fs/cgroup/memory"), thresholds, call)
}

// Close ends the calls.
func (n *Notifier) Close() error { return n.close() }

// counter sets thresholds of version 1. They go with the eventfd.
func counter(mount string, thresholds []Threshold, call func()) (*Notifier, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "eventfd")
	for _, t := range thresholds {
		if err := register(filepath.Join(mount, t.Cgroup), fd, t.Usage); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	late, err := crossed(mount, thresholds)
	if err == nil && late {
		_, err = file.Write(binary.NativeEndian.AppendUint64(nil, 1)) // as the kernel would have counted it
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	go func() {
		<-time.After(Pause)
		count := make([]byte, 8)
		for {
			if _, err := file.Read(count); err != nil {
				return // closed
			}
			call()
			<-time.After(Pause) // what is counted meanwhile is read then
		}
	}()
	return &Notifier{file.Close}, nil
}

func register(dir string, fd int, usage int64) error {
	file, err := os.Open(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	return os.WriteFile(filepath.Join(dir, "cgroup.event_control"), fmt.Appendf(nil, "%d %d %d", fd, file.Fd(), usage), 0)
}

// crossed reports whether usage has come to a threshold since that was chosen.
func crossed(mount string, thresholds []Threshold) (bool, error) {
	for _, t := range thresholds {
		text, err := os.ReadFile(filepath.Join(mount, t.Cgroup, "memory.usage_in_bytes"))
		if err != nil {
			return false, err
		}
		usage, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return false, fmt.Errorf("memory.usage_in_bytes of %s: %w", t.Cgroup, err)
		}
		if usage >= t.Usage && !t.Reached {
			return true, nil
		}
	}
	return false, nil
}

// events watches memory.events of version 2.
func events(mount string, thresholds []Threshold, call func()) (*Notifier, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	for _, t := range thresholds {
		if filepath.Clean(t.Cgroup) == "/" {
			continue
		}
		file := filepath.Join(mount, t.Cgroup, "memory.events")
		if err := watcher.Add(file); err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", file, err), watcher.Close())
		}
	}
	go func() {
		<-time.After(Pause)
		for {
			select {
			case event, ok := <-watcher.Events:
				if !ok {
					return
				}
				if event.Has(fsnotify.Write) {
					call()
					<-time.After(Pause)
				}
			case _, ok := <-watcher.Errors: // of events that were lost: a look is worth it
				if !ok {
					return
				}
				call()
			}
		}
	}()
	return &Notifier{watcher.Close}, nil
}
