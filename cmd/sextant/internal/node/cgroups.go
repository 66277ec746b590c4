package node

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

// cgroupLimit and cgroupPause are how long and how often cgroups that are busy are
// tried to be removed: what was killed takes a moment to end.
const (
	cgroupLimit = 5 * time.Second
	cgroupPause = 20 * time.Millisecond
)

// removeCgroups removes the pods' cgroups of a node that had a root of its own;
// below a shared root other agents' pods may live.
func (p *Plan) removeCgroups(ctx context.Context) error {
	if p.CgroupRoot == "" || p.CgroupRoot == "/" {
		return nil
	}
	controllers, err := filepath.Glob("/sys/fs/cgroup/*")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cgroupLimit)
	defer cancel()
	var all []error
	for _, hierarchy := range append(controllers, "/sys/fs/cgroup") {
		root := filepath.Join(hierarchy, p.CgroupRoot)
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			continue
		}
		all = append(all, removeCgroupTree(ctx, root))
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

// removeCgroup tries until the cgroup is gone. The containers are, by now; a command
// that a probe began in one as it ended may have stayed behind, and is killed.
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
