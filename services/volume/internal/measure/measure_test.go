// SPDX-License-Identifier: Apache-2.0

package measure_test

import (
	"errors"
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
	empty, err := measure.Folder(dir)
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
	full, err := measure.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if grown := full.Used - empty.Used; full.InodesIn != 4 || grown < 1<<20 || grown > 2<<20 {
		t.Errorf("full: %+v, empty was %+v", full, empty)
	}
	if _, err := measure.Folder(filepath.Join(top, "gone")); !errors.Is(err, fs.ErrNotExist) {
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
	if r, err := measure.Folder(dir); err == nil {
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
	r, err := measure.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Source != measure.StatFS || r.Capacity != 8<<20 || r.Used != 1<<20 || r.InodesIn < 2 {
		t.Errorf("%+v", r)
	}
}
