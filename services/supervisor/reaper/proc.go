// SPDX-License-Identifier: Apache-2.0

package reaper

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/pod"
)

// tick is USER_HZ, which Linux fixes at 100 for what /proc shows.
const tick = time.Second / 100

// hierarchies are where a container's processes are listed: of version 1 any that
// every runtime uses.
func hierarchies() []string {
	if cgroups.IsCgroup2UnifiedMode() {
		return []string{"/sys/fs/cgroup"}
	}
	return []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu"}
}

// findCgroup finds the cgroup of a container below the pods' (kubepods, class of
// service, pod, container). Runtimes name it with the container's ID.
func findCgroup(root pod.CgroupName, id string) (string, error) {
	const deepest = 3
	kubepods := pod.KubepodsCgroup(root)
	for _, hierarchy := range hierarchies() {
		for _, driver := range []pod.CgroupDriver{pod.Cgroupfs, pod.Systemd} {
			top := filepath.Join(hierarchy, kubepods.Path(driver))
			found := ""
			err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) {
					return fs.SkipDir // a pod that goes, or the other driver
				}
				if err != nil || !d.IsDir() {
					return err
				}
				if path != top && strings.Contains(d.Name(), id) {
					found = path
					return fs.SkipAll
				}
				if rel, err := filepath.Rel(top, path); err == nil && rel != "." && strings.Count(rel, "/") >= deepest-1 {
					return fs.SkipDir
				}
				return nil
			})
			if err != nil || found != "" {
				return found, err
			}
		}
	}
	return "", fs.ErrNotExist
}

// processes lists the processes in a cgroup and below, without those that have ended or
// are zombies.
func processes(cgroup string) ([]Process, error) {
	pids, err := cgroups.GetAllPids(cgroup)
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, pid := range pids {
		if p, err := read(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

var errEnded = errors.New("it has ended")

// read reads /proc/<pid>/stat and cmdline (proc(5)).
func read(pid int) (Process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	// The command name is in parentheses and may hold anything.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return Process{}, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	state := fields[0]
	if state == "Z" || state == "X" {
		return Process{}, errEnded
	}
	parent, err1 := strconv.Atoi(fields[1])
	session, err2 := strconv.Atoi(fields[3])
	start, err3 := strconv.ParseInt(fields[19], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return Process{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return Process{}, err
	}
	return Process{
		PID: pid, Parent: parent, Session: session, Start: time.Duration(start) * tick,
		Stopped: strings.EqualFold(state, "T"),
		Command: strings.Split(strings.TrimSuffix(string(command), "\x00"), "\x00"),
	}, nil
}

// send sends a signal to the process that was seen, never to another that got its id
// since.
func send(seen Process, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(seen.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", seen.PID, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	now, err := read(seen.PID)
	if err != nil || now.Start != seen.Start {
		return nil // it has ended
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", seen.PID, err)
	}
	return nil
}
