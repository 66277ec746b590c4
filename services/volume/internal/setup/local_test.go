// SPDX-License-Identifier: Apache-2.0

package setup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/services/volume/internal/child"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/stallfs"
	"github.com/sextant-node/sextant/test/volumetest"
)

func TestLocal(t *testing.T) {
	a, folder := apart(t, time.Minute), t.TempDir()
	write(t, filepath.Join(folder, "file"), "mine")
	dir := ""
	for range 2 { // again is the same
		b, err := a.Local("u", setup.Local{Plugin: volumetype.Local, Volume: "v", Name: "pv", Path: folder})
		if err != nil {
			t.Fatal(err)
		}
		dir = b.Path
	}
	if want := a.Layout.Root + "/pods/u/volumes/kubernetes.io~local-volume/pv"; dir != want || read(t, dir+"/file") != "mine" {
		t.Errorf("at %s, want %s", dir, want)
	}
	if n := len(volumetest.Mounts(t, dir)); n != 1 {
		t.Errorf("%d mounts, want 1", n)
	}
	only, err := a.Local("u", setup.Local{Plugin: volumetype.Local, Volume: "w", Name: "ro", Path: folder, ReadOnly: true, Options: []string{"noatime"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(only.Path, "x"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("written to a read-only one: %v", err)
	}
	write(t, filepath.Join(dir, "x"), "") // the other one is not
	for text, l := range map[string]setup.Local{
		"no such file or directory":              {Path: folder + "/none"},
		"is not a directory":                     {Path: folder + "/file"},
		"want an absolute path":                  {Path: folder + "/../x"},
		`"size=1G" is not an option of a folder`: {Path: folder, Options: []string{"size=1G"}},
	} {
		l.Plugin, l.Volume, l.Name = volumetype.Local, "bad", "bad"
		if _, err := a.Local("u", l); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %s", err, text)
		}
	}
	if path, ok := a.Mounted("u", volumetype.Local, "v", false); !ok || path != dir {
		t.Errorf("stands: %s, %v", path, ok)
	}
	if path, ok := a.Mounted("u", volumetype.Local, "never", false); ok {
		t.Errorf("one that was never made stands at %s", path)
	}
	if err := a.Remove("u"); err != nil {
		t.Error(err)
	}
	if read(t, filepath.Join(folder, "file")) != "mine" {
		t.Error("removal went through the mount")
	}
	if left := volumetest.Mounts(t, a.Layout.Root); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

// TestLocalDevice: a block volume is the device itself, found through links.
func TestLocalDevice(t *testing.T) {
	a, dir := apart(t, time.Minute), t.TempDir()
	device, link := filepath.Join(dir, "disk"), filepath.Join(dir, "by-id")
	if err := errors.Join(unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))), os.Symlink("disk", link)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "")
	for _, tc := range []struct{ path, want, err string }{
		{device, device, ""},
		{link, device, ""},
		{filepath.Join(dir, "file"), "", "is not a block device, as volumeMode: Block wants"},
		{"/dev/null", "", "is not a block device"},
		{dir, "", "is not a block device"},
		{filepath.Join(dir, "none"), "", "no such file or directory"},
		{"disk", "", "want an absolute path"},
	} {
		b, err := a.Local("u", setup.Local{Plugin: volumetype.Local, Volume: "v", Name: "pv", Path: tc.path, Block: true})
		if b.Path != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %q, %v; want %q, %q", tc.path, b.Path, err, tc.want, tc.err)
		}
	}
}

func TestLocalOnWhatHangs(t *testing.T) {
	a, dead := apart(t, 2*time.Second), stallfs.Mount(t)
	dead.Stall()
	var stuck *child.Stuck
	if _, err := a.Local("u", setup.Local{Plugin: volumetype.Local, Volume: "v", Name: "pv", Path: filepath.Join(dead.Dir, "folder")}); !errors.As(err, &stuck) {
		t.Errorf("%v", err)
	}
}
