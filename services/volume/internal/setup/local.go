// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/mounts"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/services/volume/internal/child"
)

// Local is a folder of this node that is a volume: what v1.LocalVolumeSource says, or
// where a disk is mounted.
type Local struct {
	// Plugin is volumetype.Local, or that of the disk.
	Plugin string
	// Volume is its name in the pod, Name that of the persistent volume (or the same),
	// Path its folder.
	Volume, Name, Path string
	// Options are the volume's mountOptions.
	Options  []string
	ReadOnly bool
	// Block: Path is a block device, or a link to one, and nothing is mounted.
	Block bool
	// Group is the pod's fsGroup, nil for none; with OnMismatch the files are given
	// to it only if their folder is not its already (fsGroupChangePolicy).
	Group      *int64
	OnMismatch bool
}

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

// Bound is a local volume in a pod's folder.
type Bound struct {
	Path string
	// Group is whose the volume is, if other pods of the node have it and it is not the
	// one asked for: it is left to them. Else nil.
	Group *int
	// Refused names for people the first file that could not be given to the group;
	// empty for none.
	Refused string
}

// Local binds a local volume into a pod's folder. One that stands is left as it is: the
// files in it, their groups and their rights are the containers'.
func (h *Host) Local(uid types.UID, l Local) (b Bound, err error) {
	if l.Block {
		b.Path, err = l.device()
		return b, err
	}
	b.Path = h.Dir(uid, l.Plugin, l.Name)
	marks := h.marks(uid, l.Plugin, l.Volume)
	if done, err := marks.finished(b.Path); err != nil {
		return b, err
	} else if done {
		return b, marks.note(l.Name)
	}
	flags, err := l.flags()
	if err != nil {
		return b, err
	}
	source, err := l.open()
	if err != nil {
		return b, err
	}
	defer source.Close() //nolint:errcheck // opened by path only
	if err := h.bind(uid, &l, source, b.Path, flags); err != nil {
		return b, err
	}
	if l.Group != nil && flags&unix.MS_RDONLY == 0 {
		if err := h.giveLocal(&l, source, &b); err != nil {
			return b, fmt.Errorf("fsGroup: %w", err)
		}
	}
	if err := marks.note(l.Name); err != nil {
		return b, err
	}
	return b, os.Remove(marks.unfinished())
}

// device is the block device at the path. A link, such as those in /dev/disk/by-id, may lead
// elsewhere after the next boot, so nothing of it is kept.
func (l *Local) device() (string, error) {
	if err := l.check(); err != nil {
		return "", err
	}
	path, err := filepath.EvalSymlinks(l.Path)
	if err != nil {
		return "", fmt.Errorf("local.path: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return "", fmt.Errorf("local.path: %w", err)
	}
	if info.Mode()&(os.ModeDevice|os.ModeCharDevice) != os.ModeDevice {
		return "", fmt.Errorf("local.path: %s is not a block device, as volumeMode: Block wants", l.Path)
	}
	return path, nil
}

func (l *Local) check() error {
	if !filepath.IsAbs(l.Path) || strings.Contains(l.Path+"/", "/../") {
		return fmt.Errorf("local.path %q: want an absolute path that does not go up", l.Path)
	}
	return nil
}

// open opens the folder by path only: what is opened is what is bound.
func (l *Local) open() (*os.File, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	source, err := os.OpenFile(l.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("local.path: %w", err)
	}
	info, err := source.Stat()
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory; block devices are not formatted and mounted by this node agent", l.Path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("local.path: %w", err), source.Close())
	}
	return source, nil
}

// bind makes sure that an open folder is bound to another one, with its flags.
func (h *Host) bind(uid types.UID, l *Local, source *os.File, dir string, flags uintptr) error {
	mounted, err := mounts.On(dir)
	if err != nil {
		return err
	}
	if !mounted {
		if err := h.makeDirs(uid, dir); err != nil {
			return err
		}
		if err := h.marks(uid, l.Plugin, l.Volume).begin(); err != nil {
			return err
		}
		opened := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), source.Fd())
		if err := unix.Mount(opened, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", l.Path, err)
		}
	}
	if flags == 0 {
		return nil
	}
	// A bind takes its flags afterwards.
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return errors.Join(fmt.Errorf("bind %s with its options: %w", l.Path, err), unmount(dir))
	}
	return nil
}

// giveLocal gives a volume that was bound just now to its group. A folder of this node
// that another pod has is left to that pod's; a disk is given to each pod's, as with a
// kubelet.
func (h *Host) giveLocal(l *Local, source *os.File, b *Bound) error {
	if l.Plugin == volumetype.Local {
		shared, err := h.shared(source, b.Path)
		if err != nil {
			return err
		}
		if shared {
			var st unix.Stat_t
			if err := unix.Fstat(int(source.Fd()), &st); err != nil {
				return err
			}
			if group := int(st.Gid); int64(group) != *l.Group {
				b.Group = &group
			}
			return nil
		}
	}
	var err error
	b.Refused, err = h.Give(b.Path, int(*l.Group), l.OnMismatch)
	return err
}

// shared reports whether pods have an open folder mounted, apart from one mount point.
func (h *Host) shared(source *os.File, but string) (bool, error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", source.Fd()))
	if err != nil {
		return false, err
	}
	but, err = realDir(but)
	if err != nil {
		return false, err
	}
	pods, err := realDir(h.Layout.Pods())
	if err != nil {
		return false, err
	}
	table, err := h.table.Now()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(sameAs(table, path), func(point string) bool { return point != but && holds(pods, point) }), nil
}

type localArgs struct {
	UID types.UID
	Local
}

// Local binds a local volume, which may be on any file system.
func (a Apart) Local(uid types.UID, l Local) (b Bound, err error) {
	if done, err := a.marks(uid, l.Plugin, l.Volume).finished(a.Dir(uid, l.Plugin, l.Name)); err == nil && done {
		return a.Host.Local(uid, l)
	}
	table, err := a.table.Now()
	if err != nil {
		return b, err
	}
	limit := lookLimit
	if l.Group != nil {
		limit = giveLimit
	}
	err = a.Children.Do(child.Task{
		Step: "local", On: l.Path, Place: place(table, l.Path), Args: localArgs{uid, l}, Limit: cmp.Or(a.Limit, limit), Long: l.Group != nil,
	}, &b)
	return b, err
}
