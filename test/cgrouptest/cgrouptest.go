// SPDX-License-Identifier: Apache-2.0

// Package cgrouptest gives tests a cgroup of their own on the real hierarchies,
// and takes it away again.
package cgrouptest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/cgroups"

	"github.com/sextant-node/sextant/pkg/pod"
)

const mounts = "/sys/fs/cgroup"

var next atomic.Int64

// Root names a cgroup that nobody has; with all below it, it is removed when the
// test ends.
func Root(t testing.TB) pod.CgroupName {
	t.Helper()
	root := pod.CgroupName{fmt.Sprintf("sextant-test-%d-%d", os.Getpid(), next.Add(1))}
	t.Cleanup(func() {
		for _, dir := range dirs(t, root) {
			if err := cgroups.RemovePath(dir); err != nil {
				t.Errorf("left over: %v", err)
			}
		}
	})
	return root
}

func dirs(t testing.TB, name pod.CgroupName) []string {
	t.Helper()
	pattern := filepath.Join(mounts, "*", name.Path(pod.Cgroupfs))
	if cgroups.IsCgroup2UnifiedMode() {
		pattern = filepath.Join(mounts, name.Path(pod.Cgroupfs))
	}
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Exists reports whether a cgroup is in any hierarchy.
func Exists(t testing.TB, name pod.CgroupName) bool {
	t.Helper()
	return len(dirs(t, name)) > 0
}

// Value reads one value of a cgroup: by the names of version 1 as
// "controller/file", and of version 2.
func Value(t testing.TB, name pod.CgroupName, v1, v2 string) string {
	t.Helper()
	path := filepath.Join(mounts, name.Path(pod.Cgroupfs), v2)
	if !cgroups.IsCgroup2UnifiedMode() {
		controller, file, _ := strings.Cut(v1, "/")
		path = filepath.Join(mounts, controller, name.Path(pod.Cgroupfs), file)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// Starved runs a process, tail, that takes more memory than a cgroup of its own allows,
// without swap, and returns when the kernel has killed it: the cgroup's path in the
// hierarchy of memory, and the process's ID. It needs root.
func Starved(t testing.TB) (path string, pid int) {
	t.Helper()
	mount, settings := mounts, []string{"memory.max", "8388608", "memory.swap.max", "0"}
	if !V2() {
		mount, settings = filepath.Join(mounts, "memory"), []string{"memory.limit_in_bytes", "8388608", "memory.swappiness", "0"}
	}
	path = fmt.Sprintf("/sextant-starved-%d-%d", os.Getpid(), next.Add(1))
	dir := filepath.Join(mount, path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cgroups.RemovePath(dir); err != nil {
			t.Errorf("left over: %v", err)
		}
	})
	for s := range slices.Chunk(settings, 2) {
		// A kernel without swap has no setting of it.
		if err := os.WriteFile(filepath.Join(dir, s[0]), []byte(s[1]), 0o644); err != nil && !(strings.Contains(s[0], "swap") && os.IsNotExist(err)) {
			t.Fatal(err)
		}
	}
	// tail keeps the one endless line in memory.
	cmd := exec.Command("sh", "-c", `echo $$ > "$1/cgroup.procs"; exec tail /dev/zero`, "sh", dir)
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || !strings.Contains(exit.String(), "killed") {
		t.Fatalf("it was not killed: %v", err)
	}
	return path, cmd.Process.Pid
}

// V2 reports whether the machine has cgroup version 2 alone.
func V2() bool { return cgroups.IsCgroup2UnifiedMode() }

// Occupy puts a process into a cgroup; leave ends it.
func Occupy(t testing.TB, name pod.CgroupName) (leave func()) {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	left := false
	leave = func() {
		if left {
			return
		}
		left = true
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}
	t.Cleanup(leave)
	for _, dir := range dirs(t, name) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return leave
}
