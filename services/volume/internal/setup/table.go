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

// mounted tells whether something is mounted on a folder.
func mounted(dir string) (bool, error) {
	parent, name := filepath.Split(filepath.Clean(dir))
	at, err := unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("is %s a mount point: %w", dir, err)
	}
	defer unix.Close(at) //nolint:errcheck // opened by path only
	fd, err := unix.Openat2(at, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV})
	switch {
	case err == nil:
		return false, unix.Close(fd)
	case errors.Is(err, unix.EXDEV):
		return true, nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // Linux before 5.6, or a filter that does not know it
		return inTable(dir)
	}
	return false, fmt.Errorf("is %s a mount point: %w", dir, err)
}

func inTable(dir string) (bool, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		return false, err
	}
	table, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Join(parent, filepath.Base(dir))))
	return len(table) > 0, err
}

// mountsBelow lists mount points at and below a folder, the newest first.
func mountsBelow(dir string) ([]string, error) {
	table, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("mount table: %w", err)
	}
	var points []string
	for _, m := range table {
		points = append(points, m.Mountpoint)
	}
	slices.Reverse(points)
	return points, nil
}

// holds tells whether path is dir or below it.
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
