// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/opencontainers/cgroups"
)

// TestKill uses version 2, which is mounted beside version 1 where that is in use.
func TestKill(t *testing.T) {
	v2, v1 := "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"
	if cgroups.IsCgroup2UnifiedMode() {
		v2, v1 = "/sys/fs/cgroup", ""
	}
	make := func(mount string) string {
		dir := filepath.Join(mount, "sextant-test-kill-"+strconv.Itoa(os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cgroups.RemovePath(dir); err != nil {
				t.Errorf("left over: %v", err)
			}
		})
		return dir
	}
	dir := make(v2)
	cmd := exec.Command("sh", "-c", "trap '' TERM; sleep 1000 & wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	if done, err := kill(dir); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it ended by itself")
	}
	if v1 == "" {
		return
	}
	if done, err := kill(make(v1)); done || err != nil {
		t.Errorf("version 1: %v, %v", done, err)
	}
}
