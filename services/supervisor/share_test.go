// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// mountable is an empty folder to mount things in, by the path that the mount table has.
func mountable(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// TestShare takes a root directory on a mount that is not shared to one that is,
// once, and back; and leaves one alone that holds mounts.
func TestShare(t *testing.T) {
	top := mountable(t)
	mounted := func(path string) {
		t.Helper()
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", path, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("", path, "", unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	mounted(top)
	at := func(path string) []*mountinfo.Info {
		t.Helper()
		found, err := mountinfo.GetMounts(nil)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(found, func(m *mountinfo.Info) bool { return m.Mountpoint != path })
	}
	p := &Plan{Run: filepath.Join(top, "run"), RootDir: filepath.Join(top, "kubelet")}
	for _, dir := range []string{p.Run, p.RootDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := share(p.RootDir, p.Run); err != nil {
			t.Fatal(err)
		}
		if got := at(p.RootDir); len(got) != 1 || !shared(got[0]) {
			t.Fatalf("mounted: %+v", got)
		}
	}
	for range 2 {
		if err := unshare(p.Run); err != nil {
			t.Fatal(err)
		}
		if got := at(p.RootDir); len(got) != 0 {
			t.Fatalf("still mounted: %+v", got)
		}
	}
	mounted(filepath.Join(p.RootDir, "pods/uid/volumes/secret"))
	if err := share(p.RootDir, p.Run); err != nil {
		t.Fatal(err)
	}
	if got := at(p.RootDir); len(got) != 0 {
		t.Errorf("mounted over a volume: %+v", got)
	}
}
