// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupLimit and cgroupPause are for how long and how often the removal of a busy
// cgroup is retried: killed processes take a moment to end.
const (
	cgroupLimit = 5 * time.Second
	cgroupPause = 20 * time.Millisecond
)

// hierarchies are where cgroups are mounted.
type hierarchies []string

// hostHierarchies are this machine's, of version 1 and of version 2.
func hostHierarchies() hierarchies {
	const mounts = "/sys/fs/cgroup"
	list, _ := filepath.Glob(mounts + "/*") // the pattern is well formed
	return append(list, mounts)
}

// at lists the directories of a cgroup, one in each hierarchy that has it.
func (h hierarchies) at(path string) []string {
	var dirs []string
	for _, hierarchy := range h {
		dir := filepath.Join(hierarchy, path)
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// removeCgroupTrees removes cgroups and all below them.
func removeCgroupTrees(ctx context.Context, dirs []string) error {
	ctx, cancel := context.WithTimeout(ctx, cgroupLimit)
	defer cancel()
	var all []error
	for _, dir := range dirs {
		all = append(all, removeCgroupTree(ctx, dir))
	}
	return errors.Join(all...)
}

// removeCgroupTree removes a cgroup and all below it.
func removeCgroupTree(ctx context.Context, root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	all := []error{err}
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, dir := range dirs {
		all = append(all, removeCgroup(ctx, dir))
	}
	return errors.Join(all...)
}

// removeCgroup tries until the cgroup is gone. The containers are gone already; a
// command that a probe started in one as it ended may be left, and is killed.
func removeCgroup(ctx context.Context, dir string) error {
	tick := time.NewTicker(cgroupPause)
	defer tick.Stop()
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if errors.Is(err, unix.EBUSY) {
			err = errors.Join(err, killIn(dir))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cgroup %s: %w", dir, err)
		case <-tick.C:
		}
	}
}

// killIn kills what is in a cgroup.
func killIn(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, field := range strings.Fields(string(text)) {
		// 0 stands for a process of another PID namespace.
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill %d: %w", pid, err)
			}
		}
	}
	return nil
}
