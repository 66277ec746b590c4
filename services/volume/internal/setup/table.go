// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// What is here asks the kernel's mount table alone, never a file system: it
// cannot hang.

// below lists the mount points below a folder, the newest first: one for each time that
// something is mounted there.
func below(table []*mountinfo.Info, dir string) []string {
	var points []string
	for _, m := range slices.Backward(table) {
		if m.Mountpoint != dir && holds(dir, m.Mountpoint) {
			points = append(points, m.Mountpoint)
		}
	}
	return points
}

// holds reports whether path is dir or below it.
func holds(dir, path string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// mountOf finds the mount a path is on, taking the path as it is spelt.
func mountOf(table []*mountinfo.Info, path string) *mountinfo.Info {
	var of *mountinfo.Info
	for _, m := range table {
		if holds(m.Mountpoint, path) && (of == nil || len(m.Mountpoint) >= len(of.Mountpoint)) {
			of = m
		}
	}
	return of
}

// sameAs lists the mount points where what has a real path is mounted again.
func sameAs(table []*mountinfo.Info, path string) []string {
	of := mountOf(table, path)
	if of == nil {
		return nil
	}
	root := filepath.Join(of.Root, strings.TrimPrefix(path, of.Mountpoint))
	var points []string
	for _, m := range table {
		if m.Major == of.Major && m.Minor == of.Minor && m.Root == root && m.Mountpoint != path {
			points = append(points, m.Mountpoint)
		}
	}
	return points
}

// foreign lists the mount points at and below a folder of the root directory, the
// newest first, that may hang on their own: all but memory, and what is on the
// disk of the root directory itself.
func foreign(table []*mountinfo.Info, root, dir string) []string {
	home := mountOf(table, root)
	var points []string
	for _, m := range table {
		switch {
		case !holds(dir, m.Mountpoint), m.FSType == "tmpfs", m.FSType == "hugetlbfs":
		case home != nil && m.Major == home.Major && m.Minor == home.Minor:
		default:
			points = append(points, m.Mountpoint)
		}
	}
	slices.Reverse(points)
	return points
}

// place names what hangs when a path does: the remote file system it is spelt to
// be on, else the path alone.
func place(table []*mountinfo.Info, path string) string {
	if m := mountOf(table, filepath.Clean(path)); m != nil && remote(m.FSType) {
		return m.Mountpoint
	}
	return path
}

// remote file systems have a server that may go.
func remote(fstype string) bool {
	for _, kind := range []string{"fuse", "nfs", "cifs", "smb", "ceph", "9p", "virtiofs", "gfs", "glusterfs", "lustre", "afs", "autofs", "ocfs", "beegfs"} {
		if strings.HasPrefix(fstype, kind) {
			return fstype != "fusectl"
		}
	}
	return false
}

func unmount(point string) error {
	if err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", point, err)
	}
	return nil
}

// realDir resolves links; "" for a folder that is not there.
func realDir(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return real, err
}
