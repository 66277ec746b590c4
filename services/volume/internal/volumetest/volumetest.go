// Package volumetest gives tests a root directory with real mounts below it, and
// takes them away again.
package volumetest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

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
