// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/mounts"
)

// Remove unmounts and removes everything volumes left of a pod. What is mounted still, or
// again, is an error, and never removed with what is behind it.
//
// Most volumes are mounted where they belong and nowhere else. The mount table, which the
// kernel takes tens of milliseconds to write out where many pods run, is read when there is
// more to a pod: parts of volumes, what a container mounted in one, or one mount on another.
func (h *Host) Remove(uid types.UID) error {
	if h.unmountPlaces(uid) == nil && h.removeFolders(uid) == nil {
		return nil
	}
	table, err := h.table.Now()
	if err != nil {
		return err
	}
	points, err := h.points(table, uid)
	if err != nil {
		return err
	}
	if err := unmountAll(points); err != nil {
		return err
	}
	return h.removeFolders(uid)
}

// unmountPlaces unmounts the volumes of a pod that are mounted where they belong.
func (h *Host) unmountPlaces(uid types.UID) error {
	for _, folder := range h.folders(uid)[1:] {
		plugins, err := names(folder)
		if err != nil {
			return err
		}
		for _, plugin := range plugins {
			volumes, err := names(plugin)
			if err != nil {
				return err
			}
			for _, volume := range volumes {
				if err := unmountPlace(volume); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// unmountPlace unmounts a volume, or that of a CSI driver, which is mounted in its folder.
func unmountPlace(volume string) error {
	for _, place := range []string{volume, filepath.Join(volume, "mount")} {
		on, err := mounts.On(place)
		if err != nil {
			return err
		}
		if on {
			return unmount(place)
		}
	}
	return nil
}

// names are the paths of what a folder has in it; none of one that is not there.
func names(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	paths := make([]string, len(entries))
	for i, e := range entries {
		paths[i] = filepath.Join(folder, e.Name())
	}
	return paths, err
}

func unmountAll(points []string) error {
	for _, point := range points {
		if err := unmount(point); err != nil {
			return err
		}
	}
	return nil
}

// folders are those in a pod's own that volumes are in. The parts of volumes are unmounted
// and removed before the volumes.
func (h *Host) folders(uid types.UID) []string {
	return []string{h.Layout.VolumeSubpaths(uid), h.Layout.Volumes(uid), h.Layout.VolumeDevices(uid), h.Layout.Plugins(uid)}
}

// points lists the mount points in the folders of a pod's volumes, the newest first.
func (h *Host) points(table []*mountinfo.Info, uid types.UID) ([]string, error) {
	// The table has real paths; the root directory may be a link.
	dir, err := realDir(h.Layout.Pod(uid))
	if err != nil || dir == "" {
		return nil, err
	}
	var points []string
	for _, point := range below(table, dir) {
		for _, folder := range h.folders(uid) {
			if holds(filepath.Join(dir, filepath.Base(folder)), point) {
				points = append(points, point)
			}
		}
	}
	return points, nil
}

// removeFolders removes what is left of a pod's volumes once nothing is mounted any more.
func (h *Host) removeFolders(uid types.UID) error {
	folders := h.folders(uid)
	if err := removeTargets(folders[0], targetsDepth); err != nil {
		return err
	}
	var failed []error
	for _, folder := range folders[1:] {
		failed = append(failed, mounts.RemoveTree(folder))
	}
	return errors.Join(failed...)
}

// targetsDepth is how deep below volume-subpaths what parts are bound to is: a folder for
// the volume, one for the container, and the target.
const targetsDepth = 3

// removeTargets removes what parts of volumes were bound to, and the folders above: empty
// folders and empty files. A target with something in it is not removed, whatever that is.
func removeTargets(path string, depth int) error {
	if depth > 0 {
		entries, err := os.ReadDir(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if err := removeTargets(filepath.Join(path, e.Name()), depth-1); err != nil {
				return err
			}
		}
	}
	return removeTarget(path)
}

// removeTarget removes an empty folder, or a file, on which nothing is mounted.
func removeTarget(path string) error {
	return file.Remove(path)
}
