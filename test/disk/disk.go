// SPDX-License-Identifier: Apache-2.0

// Package disk gives tests a disk of their own that can be full or read-only. It
// needs root, to mount.
package disk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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

// Image mounts a file system of a real disk (ext4), a file of so many bytes with so many
// inodes, at dir until the test ends. It needs root and loop devices.
func Image(t testing.TB, dir string, bytes int64, inodes int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk.img")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, nil, 0o600), os.Truncate(file, bytes)); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("mkfs.ext4", "-q", "-m", "0", "-N", strconv.Itoa(inodes), file)
	device := run("losetup", "--find", "--show", file)
	t.Cleanup(func() { // the mount has ended; a lazy one keeps the device until it has
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach %s: %v: %s", device, err, out)
		}
	})
	if err := unix.Mount(device, dir, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
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
