// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/mounts"
)

// Subpath binds the part of a volume that subPath names to a path outside the
// pod's reach and returns it. The part is opened first, without following a
// link out of the volume, and what was opened is bound: the pod can no more
// swap it (CVE-2017-1002101). A missing part is made as a folder.
func (h *Host) Subpath(uid types.UID, volume, container string, index int, volumePath, subPath string) (string, error) {
	if filepath.IsAbs(subPath) || strings.Contains("/"+subPath+"/", "/../") {
		return "", fmt.Errorf("subPath %q: want a relative path that does not go up", subPath)
	}
	target := h.Layout.VolumeSubpath(uid, volume, container, index)
	part, err := pathrs.OpenInRoot(volumePath, subPath)
	if errors.Is(err, fs.ErrNotExist) {
		part, err = h.makeSubpath(volumePath, subPath)
	}
	if err != nil {
		return "", fmt.Errorf("subPath %q: %w", subPath, err)
	}
	defer part.Close() //nolint:errcheck // opened by path only
	info, err := part.Stat()
	if err != nil {
		return "", fmt.Errorf("subPath %q: %w", subPath, err)
	}
	if done, err := boundAlready(target, info); done || err != nil {
		return target, err
	}
	if err := mountTarget(target, info.IsDir()); err != nil {
		return "", fmt.Errorf("subPath %q: %w", subPath, err)
	}
	opened := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), part.Fd())
	if err := unix.Mount(opened, target, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("subPath %q: bind: %w", subPath, err)
	}
	return target, nil
}

// boundAlready reports whether the part is bound to the target. Another one, of an
// earlier container, is taken away: what it ran with was replaced since.
func boundAlready(target string, part fs.FileInfo) (bool, error) {
	for {
		bound, err := mounts.On(target)
		if err != nil {
			return false, err
		}
		if !bound {
			if was, err := os.Lstat(target); err == nil && was.IsDir() != part.IsDir() {
				return false, removeTarget(target)
			}
			return false, nil
		}
		if at, err := os.Stat(target); err == nil && os.SameFile(at, part) {
			return true, nil
		}
		if err := unmount(target); err != nil { // one of those that are mounted there
			return false, err
		}
	}
}

// makeSubpath makes the folders that are missing, each with the rights of the volume's own:
// another container may be given one of those above.
func (h *Host) makeSubpath(volumePath, subPath string) (part *os.File, err error) {
	info, err := os.Stat(volumePath)
	if err != nil {
		return nil, err
	}
	root, err := pathrs.OpenInRoot(volumePath, ".")
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // opened by path only
	at := ""
	for name := range strings.SplitSeq(filepath.Clean(subPath), "/") {
		if part != nil {
			part.Close() //nolint:errcheck // opened by path only
		}
		at = filepath.Join(at, name)
		if part, err = pathrs.OpenatInRoot(root, at); errors.Is(err, fs.ErrNotExist) {
			part, err = makeFolder(root, at, info.Mode(), h.Owner)
		}
		if err != nil {
			return nil, err
		}
	}
	return part, nil
}

// makeFolder makes one folder of a volume. It belongs to owner and owner's group, or to the
// group of a folder above it that hands its group down.
func makeFolder(root *os.File, path string, mode fs.FileMode, owner int) (*os.File, error) {
	made, err := pathrs.MkdirAllHandle(root, path, mode.Perm())
	if err != nil {
		return nil, err
	}
	info, err := made.Stat()
	if err != nil {
		return nil, errors.Join(err, made.Close())
	}
	group := owner
	if info.Mode()&fs.ModeSetgid != 0 {
		group = -1
	}
	name := fmt.Sprintf("/proc/self/fd/%d", made.Fd())
	err = errors.Join(os.Chown(name, owner, group), os.Chmod(name, mode&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky)))
	if err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return made, nil
}

// mountTarget makes what is bound over: a folder, or a file.
func mountTarget(target string, dir bool) error {
	if dir {
		return os.MkdirAll(target, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}
