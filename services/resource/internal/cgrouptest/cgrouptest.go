// Package cgrouptest gives tests a cgroup of their own on the real hierarchies,
// and takes it away again.
package cgrouptest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// Exists tells whether a cgroup is in any hierarchy.
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

// V2 tells whether the machine has cgroup version 2 alone.
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
