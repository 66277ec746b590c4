package setup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/services/volume/internal/child"
)

// Local is a folder of this node that is a volume: what v1.LocalVolumeSource says, or
// where a disk is mounted.
type Local struct {
	// Plugin is content.Local, or that of the disk.
	Plugin string
	// Volume is its name in the pod, Name that of the persistent volume (or the same),
	// Path its folder.
	Volume, Name, Path string
	// Options are the volume's mountOptions.
	Options  []string
	ReadOnly bool
	// Group is the pod's fsGroup, nil for none; with OnMismatch the files are given
	// to it only if their folder is not its already (fsGroupChangePolicy).
	Group      *int64
	OnMismatch bool
}

// groupLimit is how long it may take to give every file to a group.
const groupLimit = 30 * time.Minute

// bindFlags are what can be asked of a folder that is bound.
var bindFlags = map[string]uintptr{
	"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	"rw": 0, "suid": 0, "dev": 0, "exec": 0, "bind": 0, "defaults": 0,
}

func (l *Local) flags() (flags uintptr, err error) {
	for _, option := range l.Options {
		flag, ok := bindFlags[option]
		if !ok {
			return 0, fmt.Errorf("mountOptions: %q is not an option of a folder that is bound", option)
		}
		flags |= flag
	}
	if l.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	return flags, nil
}

// Local binds a local volume into a pod's folder and returns its path.
func (h *Host) Local(uid types.UID, l Local) (string, error) {
	flags, err := l.flags()
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(l.Path) || strings.Contains(l.Path+"/", "/../") {
		return "", fmt.Errorf("local.path %q: want an absolute path that does not go up", l.Path)
	}
	// What is opened is what is bound.
	source, err := os.OpenFile(l.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("local.path: %w", err)
	}
	defer source.Close() //nolint:errcheck // opened by path only
	info, err := source.Stat()
	if err != nil {
		return "", fmt.Errorf("local.path: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("local.path: %s is not a directory; block devices are not formatted and mounted by this node agent", l.Path)
	}
	dir := h.Dir(uid, l.Plugin, l.Name)
	there, err := pointThere(dir)
	if err != nil {
		return "", err
	}
	if !there {
		if err := h.makeDirs(uid, dir); err != nil {
			return "", err
		}
		opened := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), source.Fd())
		if err := unix.Mount(opened, dir, "", unix.MS_BIND, ""); err != nil {
			return "", fmt.Errorf("bind %s: %w", l.Path, err)
		}
	}
	if flags != 0 { // a bind takes its flags afterwards; again does no harm
		if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
			return "", errors.Join(fmt.Errorf("bind %s with its options: %w", l.Path, err), unmount(dir))
		}
	}
	if l.Group != nil && flags&unix.MS_RDONLY == 0 && !(l.OnMismatch && isOf(info, int(*l.Group))) {
		if err := giveTo(dir, int(*l.Group)); err != nil {
			return "", fmt.Errorf("fsGroup: %w", err)
		}
	}
	return dir, h.note(uid, l.Plugin, l.Volume, l.Name)
}

// isOf tells whether a folder is a group's: its id, its rights, and its bit.
func isOf(info fs.FileInfo, group int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	const want = unix.S_ISGID | 0o770
	return ok && int(st.Gid) == group && st.Mode&want == want
}

type localArgs struct {
	UID types.UID
	Local
}

// Local binds a local volume, which may be on any file system.
func (a Apart) Local(uid types.UID, l Local) (string, error) {
	table, err := mountinfo.GetMounts(nil)
	if err != nil {
		return "", err
	}
	path, limit := "", lookLimit
	if l.Group != nil {
		limit = groupLimit
	}
	err = a.Children.Do(child.Task{
		Step: "local", On: l.Path, Place: place(table, l.Path), Args: localArgs{uid, l}, Limit: cmp.Or(a.Limit, limit),
	}, &path)
	return path, err
}
