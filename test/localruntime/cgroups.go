// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// removeCgroup removes a cgroup and those below it from every hierarchy. The
// kernel refuses while a process is inside, so nothing that runs is disturbed;
// a process that is just ending is waited for.
func removeCgroup(ctx context.Context, path string) error {
	roots, err := cgroupMounts()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var last error
	err = poll(ctx, func() bool {
		last = nil
		for _, r := range roots {
			if err := rmdirTree(filepath.Join(r, path)); err != nil {
				last = err
			}
		}
		return last == nil
	})
	if err != nil {
		return fmt.Errorf("cgroup %s: %w (%w)", path, err, last)
	}
	return nil
}

// cgroupMounts lists the mount points of all cgroup hierarchies, v1 and v2.
func cgroupMounts() ([]string, error) {
	infos, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	var points []string
	for _, m := range infos {
		if strings.HasPrefix(m.FsType, "cgroup") {
			points = append(points, m.MountPoint)
		}
	}
	return points, nil
}

// rmdirTree removes the directories of a cgroup from the bottom up; the files in
// them are the kernel's and go by themselves.
func rmdirTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := rmdirTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}
