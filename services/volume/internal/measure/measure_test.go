// SPDX-License-Identifier: Apache-2.0

package measure_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/services/volume/internal/measure"
)

func TestAFolderOnASharedDisk(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "volume")
	outside := filepath.Join(top, "outside")
	for _, d := range []string{filepath.Join(dir, "sub"), outside} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path string, size int) {
		t.Helper()
		if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	empty, err := measure.Volume(dir)
	if err != nil {
		t.Fatal(err)
	}
	if empty.Source != measure.Du || empty.InodesIn != 2 || empty.Capacity == 0 || empty.Available > empty.Capacity {
		t.Errorf("empty: %+v", empty)
	}
	write(filepath.Join(dir, "sub", "file"), 1<<20)
	write(filepath.Join(outside, "large"), 4<<20)
	for link, to := range map[string]string{"second": filepath.Join(dir, "sub", "file")} {
		if err := os.Link(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	// A link leads out; nothing beyond it counts.
	if err := os.Symlink(outside, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	full, err := measure.Volume(dir)
	if err != nil {
		t.Fatal(err)
	}
	if grown := full.Used - empty.Used; full.InodesIn != 4 || grown < 1<<20 || grown > 2<<20 {
		t.Errorf("full: %+v, empty was %+v", full, empty)
	}
	if _, err := measure.Volume(filepath.Join(top, "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestFoldersWithoutEnd(t *testing.T) {
	dir := t.TempDir()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := unix.Mkdirat(at, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Close(at); err != nil {
			t.Fatal(err)
		}
		at = next
	}
	if err := unix.Close(at); err != nil {
		t.Fatal(err)
	}
	if r, err := measure.Volume(dir); err == nil {
		t.Errorf("%+v", r)
	}
}

func TestAMountOfItsOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := measure.Volume(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Source != measure.StatFS || r.Capacity != 8<<20 || r.Used != 1<<20 || r.InodesIn < 2 {
		t.Errorf("%+v", r)
	}
}

// TestABoundFolder is a mount of its own as well, as a local volume is: a kubelet asks its
// file system.
func TestABoundFolder(t *testing.T) {
	top := t.TempDir()
	source, dir := filepath.Join(top, "disk"), filepath.Join(top, "volume")
	for _, d := range []string{source, dir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(source, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	r, err := measure.Volume(dir)
	if err != nil || r.Source != measure.StatFS {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestABlockDevice: its size is said, and nothing of the file system that its node is on. It
// is not opened: any device of this machine will do, by a node of the test's own.
func TestABlockDevice(t *testing.T) {
	devices, err := filepath.Glob("/sys/dev/block/*:*")
	if err != nil || len(devices) == 0 {
		t.Skip("no block device on this machine")
	}
	node := filepath.Join(t.TempDir(), "device")
	for _, device := range devices {
		var major, minor uint32
		var sectors uint64
		text, err := os.ReadFile(filepath.Join(device, "size"))
		if _, err := fmt.Sscan(string(text), &sectors); err != nil {
			t.Fatal(err)
		}
		if _, serr := fmt.Sscanf(filepath.Base(device), "%d:%d", &major, &minor); err != nil || serr != nil {
			t.Fatal(err, serr)
		}
		if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil {
			t.Fatal(err)
		}
		want := measure.Reading{Source: measure.Block, Capacity: sectors * 512}
		if r, err := measure.Volume(node); err != nil || *r != want {
			t.Errorf("%s: %+v, %v, want %+v", device, r, err, want)
		}
		if err := os.Remove(node); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))); err != nil {
		t.Fatal(err)
	}
	if r, err := measure.Volume(node); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a device that is not there: %+v, %v", r, err)
	}
}
