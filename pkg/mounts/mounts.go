// SPDX-License-Identifier: Apache-2.0

// Package mounts tells mount points without reading the mount table, and removes
// folders without removing what is mounted in them.
//
// Both rest on openat2(2) with RESOLVE_NO_XDEV, which stops at every mount point, a
// bind of the same file system included. A kernel before 5.6, or a seccomp filter
// that does not know the call, is asked in other ways (see On and RemoveTree).
package mounts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// On reports whether something is mounted on a path, which is a folder or a file, or does
// not exist. The file system that is mounted there is not asked, so the call does not hang
// with it.
func On(path string) (bool, error) {
	parent, name := filepath.Split(filepath.Clean(path))
	at, err := unix.Open(filepath.Clean(parent), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("is %s a mount point: %w", path, err)
	}
	defer unix.Close(at) //nolint:errcheck // opened by path only
	fd, err := openat2(at, name, unix.O_PATH)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err == nil:
		return false, unix.Close(fd)
	case errors.Is(err, unix.EXDEV):
		return true, nil
	case unknown(err):
		return inTable(path)
	}
	return false, fmt.Errorf("is %s a mount point: %w", path, err)
}

// inTable looks a path up in the mount table.
func inTable(path string) (bool, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path)) // the table has real paths
	if err != nil {
		return false, err
	}
	table, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Join(parent, filepath.Base(path))))
	return len(table) > 0, err
}

// openat2 opens a name of a folder, unless something is mounted there (EXDEV). Tests
// replace it by a kernel that does not know the call.
var openat2 = func(at int, name string, flags uint64) (int, error) {
	return unix.Openat2(at, name, &unix.OpenHow{Flags: flags | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV})
}

// unknown reports whether the kernel (ENOSYS) or a filter (EPERM) does not know openat2.
func unknown(err error) bool { return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) }

// enter opens a folder that is a name of another one. The error is EXDEV for one that
// something is mounted on.
func enter(at int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY
	fd, err := openat2(at, name, flags)
	if !unknown(err) {
		return fd, err
	}
	if fd, err = unix.Openat(at, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return -1, err
	}
	var mount [2]int
	for i, of := range []int{at, fd} {
		if mount[i], err = mountOf(of); err != nil {
			break
		}
	}
	if err == nil && mount[0] != mount[1] {
		err = unix.EXDEV
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// mountOf is the kernel's number of the mount that a descriptor was opened in (proc(5),
// fdinfo; Linux 3.15).
func mountOf(fd int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0, err
	}
	_, after, ok := bytes.Cut(text, []byte("mnt_id:"))
	if !ok {
		return 0, errors.New("the kernel does not tell the mount of an open file")
	}
	line, _, _ := bytes.Cut(after, []byte("\n"))
	return strconv.Atoi(string(bytes.TrimSpace(line)))
}
