// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// deepest is how deeply the folders of a volume may be nested to be given to a group. Each
// level costs an open file, and a container chooses how many there are. A kubelet gives
// up at about as many, when a path is too long for the kernel.
const deepest = 2048

// Give gives a volume to a group (v1.PodSecurityContext.FSGroup); with onMismatch
// only if its root is not the group's already (v1.FSGroupChangeOnRootMismatch). What
// refuses a change does not keep the rest: refused names the first, for people.
func (h *Host) Give(path string, group int, onMismatch bool) (refused string, err error) {
	if onMismatch {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return "", fmt.Errorf("stat %s: %w", path, err)
		}
		if isOf(&st, group) {
			return "", nil
		}
	}
	return giveTo(path, group)
}

// isOf reports whether a folder is a group's: its id, its rights, and its bit.
func isOf(st *unix.Stat_t, group int) bool {
	const want = unix.S_IFDIR | unix.S_ISGID | 0o770
	return int(st.Gid) == group && st.Mode&want == want
}

// giveTo gives a volume to the pod's fsGroup: group id, group rights, and the setgid bit
// on folders. It goes from an open folder to a name in it, so that no link leads the
// change of rights astray. A folder comes after what is in it: should it end half-way,
// the root says that the volume is not the group's yet.
func giveTo(dir string, group int) (refused string, err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", dir, err)
	}
	g := giver{group: group}
	err = g.folder(fd, dir)
	return g.refused, err
}

// giver is one volume on its way to a group.
type giver struct {
	group   int
	refused string
	depth   int
}

// folder gives what is in an open folder, then the folder, and closes it.
func (g *giver) folder(fd int, name string) error {
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close() //nolint:errcheck // read only
	if g.depth++; g.depth > deepest {
		return fmt.Errorf("folders are nested deeper than %d", deepest)
	}
	defer func() { g.depth-- }()
	for {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			if err := g.entry(fd, name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read folder %q: %w", name, err)
		}
	}
	g.give(fd, name)
	return nil
}

// entry gives what has a name in an open folder. It may be gone by now: others may use
// the volume.
func (g *giver) entry(at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		return g.folder(fd, name)
	}
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		fd, err = unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("open %q: %w", name, err)
	}
	defer unix.Close(fd) //nolint:errcheck // opened by path only
	g.give(fd, name)
	return nil
}

// give changes the group and the rights of what is open. A link has a group only.
func (g *giver) give(fd int, name string) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && int(st.Gid) != g.group {
		err = unix.Fchownat(fd, "", -1, g.group, unix.AT_EMPTY_PATH)
	}
	mode := st.Mode | 0o660
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		mode = st.Mode
	case unix.S_IFDIR:
		mode |= unix.S_ISGID | 0o110
	}
	if err == nil && (mode != st.Mode || int(st.Gid) != g.group) && st.Mode&unix.S_IFMT != unix.S_IFLNK {
		// Also where only the group changed: that takes bits away.
		err = unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), mode&0o7777, 0)
	}
	if err != nil && g.refused == "" {
		g.refused = fmt.Sprintf("%q: %v", name, err)
	}
}
