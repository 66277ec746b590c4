// SPDX-License-Identifier: Apache-2.0

// Package volumetest gives tests a root directory with real mounts below it, and
// takes them away again.
package volumetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const childOf = "SEXTANT_TEST_VOLUME_CHILD"

// Child is for TestMain: in a process started by Command it serves and exits.
func Child(serve func(root string) error) {
	root, ok := os.LookupEnv(childOf)
	if !ok {
		return
	}
	if err := serve(root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Command starts the test's own binary as a child.
func Command(root string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), childOf+"="+root)
		cmd.Stderr = os.Stderr
		return cmd
	}
}

// Root makes a kubelet root directory with a pods folder in it. What is mounted
// below it when the test ends is unmounted.
func Root(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "pods"), 0o751); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, point := range Mounts(t, root) {
			if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
				t.Errorf("left over: %s: %v", point, err)
			}
		}
	})
	return root
}

// Mounts lists the mount points at and below a path, the newest first.
func Mounts(t testing.TB, path string) []string {
	t.Helper()
	table, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for _, m := range table {
		points = append(points, m.Mountpoint)
	}
	slices.Reverse(points)
	return points
}
