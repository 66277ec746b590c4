// SPDX-License-Identifier: Apache-2.0

package harness_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// TestTracesFindsEachKind leaves one thing of every kind and expects to be told.
func TestTracesFindsEachKind(t *testing.T) {
	const prefix = "sxtself"
	dir := t.TempDir()
	if left := harness.Traces(dir, prefix); len(left) != 0 {
		t.Fatalf("before anything was made: %v", left)
	}
	expect := func(kind string, undo func() error) {
		t.Helper()
		left := harness.Traces(dir, prefix)
		if len(left) == 0 || !strings.HasPrefix(left[0], kind+" ") {
			t.Errorf("a %s left behind: found %v", kind, left)
		}
		if err := undo(); err != nil {
			t.Error(err)
		}
		if left := harness.Traces(dir, prefix); len(left) != 0 {
			t.Errorf("after the %s was removed: %v", kind, left)
		}
	}

	sleeper := exec.Command("sleep", "1000")
	sleeper.Dir = filepath.Join(dir, "in")
	if err := errors.Join(os.Mkdir(sleeper.Dir, 0o755), sleeper.Start()); err != nil {
		t.Fatal(err)
	}
	expect("process", func() error {
		err := sleeper.Process.Kill()
		_ = sleeper.Wait() // it reports the kill
		return err
	})

	if err := unix.Mount("none", sleeper.Dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	expect("mount", func() error { return unix.Unmount(sleeper.Dir, 0) })

	cgroup := filepath.Join(cgroupMount(t), prefix)
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	expect("cgroup", func() error { return unix.Rmdir(cgroup) })

	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: prefix + "0"}}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	expect("interface", func() error { return netlink.LinkDel(link) })

	rule := []string{"-w", "-t", "nat", "-A", "OUTPUT", "-d", "192.0.2.255", "-m", "comment", "--comment", prefix}
	if out, err := exec.Command("iptables", rule...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rule[3] = "-D"
	expect("rule", exec.Command("iptables", rule...).Run)
}

// cgroupMount is the mount point of a hierarchy that cgroups can be made in.
func cgroupMount(t *testing.T) string {
	t.Helper()
	for _, d := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		var s unix.Statfs_t
		if err := unix.Statfs(d, &s); err == nil && (s.Type == unix.CGROUP_SUPER_MAGIC || s.Type == unix.CGROUP2_SUPER_MAGIC) {
			return d
		}
	}
	t.Fatal("no cgroup hierarchy")
	return ""
}
