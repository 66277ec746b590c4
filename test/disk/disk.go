// SPDX-License-Identifier: Apache-2.0

// Package disk gives tests a disk of their own that can be full or read-only. It
// needs root, to mount.
package disk

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Disk is a small file system.
type Disk struct {
	// Dir is where it is mounted.
	Dir string
	t   testing.TB
}

// Small mounts a file system in memory of so many bytes until the test ends. The
// test is skipped where that is not allowed.
func Small(t testing.TB, size string) *Disk {
	t.Helper()
	d := &Disk{t.TempDir(), t}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a disk")
	}
	if err := unix.Mount("sextant-test", d.Dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.Dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

// filler takes up the room.
const filler = "full"

// Fill leaves no room.
func (d *Disk) Fill() {
	d.t.Helper()
	f, err := os.Create(filepath.Join(d.Dir, filler))
	if err != nil {
		d.t.Fatal(err)
	}
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err = f.Write(block); err != nil { // and then what is left in smaller pieces
			block = block[:len(block)/2]
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatalf("not full: %v", err)
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
}

// Free makes room again.
func (d *Disk) Free() {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.Dir, filler)); err != nil {
		d.t.Fatal(err)
	}
}

// ReadOnly has all writes refused, or lets them through again.
func (d *Disk) ReadOnly(on bool) {
	d.t.Helper()
	flags := uintptr(unix.MS_REMOUNT)
	if on {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("", d.Dir, "", flags, ""); err != nil {
		d.t.Fatal(err)
	}
}
