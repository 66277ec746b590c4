package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Remove unmounts and removes everything volumes left of a pod. A folder that
// is still a mount point is an error, never removed with what is behind it.
func (h *Host) Remove(uid types.UID) error {
	for _, dir := range []string{h.Layout.VolumeSubpaths(uid), h.Layout.Volumes(uid), h.Layout.VolumeDevices(uid), h.Layout.Plugins(uid)} {
		// The mount table has real paths; the root directory may be a link.
		dir, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := removeAll(dir); err != nil {
			return err
		}
	}
	return nil
}

func removeAll(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, point := range points {
		if err := unmount(point); err != nil {
			return err
		}
	}
	left, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%s is still mounted", left[0])
	}
	if err := oneFileSystem(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// oneFileSystem makes sure, without the mount table, that removing a folder
// stays on the file system it is on.
func oneFileSystem(dir string) error {
	var top unix.Stat_t
	if err := unix.Lstat(dir, &top); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if st.Dev != top.Dev {
			return fmt.Errorf("%s is on another file system than the pod's folder: not removed", path)
		}
		return nil
	})
}
