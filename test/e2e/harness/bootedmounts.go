// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountRoot makes the machine's file systems below root. The source and the cache are
// this machine's own.
func mountRoot(dir, root string) error {
	memory := filepath.Join(dir, "memory")
	cache := cacheDir()
	source, err := moduleRoot()
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts from this machine: %w", err)
	}
	type step struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}
	steps := []step{
		{"tmpfs", memory, "tmpfs", 0, "mode=0755"},
		{"overlay", root, "overlay", 0, "lowerdir=/,upperdir=" + memory + "/upper,workdir=" + memory + "/work"},
		{filepath.Join(dir, "tmp"), root + "/tmp", "", unix.MS_BIND, ""},
	}
	onDisk, err := mountDisk(dir)
	if err != nil {
		return err
	}
	for _, path := range onDisk {
		steps = append(steps, step{filepath.Join(dir, "disk", path), root + path, "", unix.MS_BIND, ""})
	}
	steps = append(steps, []step{
		{cache, root + cache, "", unix.MS_BIND, ""}, // they may be below /tmp
		{source, root + source, "", unix.MS_BIND, ""},
		{filepath.Join(dir, "files"), root + BootFiles, "", unix.MS_BIND, ""},
		{"proc", root + "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", root + "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"tmpfs", root + "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		{"tmpfs", root + "/dev", "tmpfs", unix.MS_NOSUID, "mode=0755"},
		{"devpts", root + "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{"tmpfs", root + "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	}...)
	if to := os.Getenv("SEXTANT_ARTIFACTS"); filepath.IsAbs(to) {
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		steps = append(steps, step{to, root + to, "", unix.MS_BIND, ""})
	}
	groups, err := cgroupMounts()
	if err != nil {
		return err
	}
	for _, g := range groups {
		target := root + g.path
		if g.kind == "tmpfs" {
			steps = append(steps, step{"tmpfs", target, "tmpfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "mode=0755"})
			continue
		}
		steps = append(steps, step{g.kind, target, g.kind, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, g.options})
	}
	for _, s := range steps {
		if s.target != root && s.target != memory && !strings.HasPrefix(s.target, root+"/sys") || strings.HasPrefix(s.target, root+"/sys/fs/cgroup/") {
			if err := os.MkdirAll(s.target, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount(s.source, s.target, s.kind, s.flags, s.data); err != nil {
			return fmt.Errorf("mount %s on %s (%s): %w", s.source, s.target, s.data, err)
		}
		if s.target == memory {
			if err := errors.Join(os.Mkdir(memory+"/upper", 0o755), os.Mkdir(memory+"/work", 0o755), hideOutside(memory+"/upper")); err != nil {
				return err
			}
		}
	}
	for name, device := range map[string]uint64{
		"null": unix.Mkdev(1, 3), "zero": unix.Mkdev(1, 5), "full": unix.Mkdev(1, 7), "random": unix.Mkdev(1, 8), "urandom": unix.Mkdev(1, 9),
		"kmsg": unix.Mkdev(1, 11), "tty": unix.Mkdev(5, 0), "fuse": unix.Mkdev(10, 229),
	} {
		path := filepath.Join(root, "dev", name)
		if err := errors.Join(unix.Mknod(path, unix.S_IFCHR|0o666, int(device)), os.Chmod(path, 0o666)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, filepath.Join(root, "dev", name)); err != nil {
			return err
		}
	}
	return nil
}

// hideOutside gives the machine folders of its own where kubelets of this machine make and remove
// theirs: one that goes below an overlay cannot be read there any more.
func hideOutside(upper string) error {
	for _, dir := range outside {
		if err := os.MkdirAll(upper+dir, 0o755); err != nil {
			return err
		}
		if err := unix.Setxattr(upper+dir, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// cgroupMount is one mount of cgroups as this machine has them.
type cgroupMount struct{ path, kind, options string }

func cgroupMounts() ([]cgroupMount, error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var all []cgroupMount
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[1] != "/sys/fs/cgroup" && !strings.HasPrefix(f[1], "/sys/fs/cgroup/") || seen[f[1]] {
			continue
		}
		seen[f[1]] = true
		var options []string
		for o := range strings.SplitSeq(f[3], ",") {
			switch {
			case f[2] != "cgroup", o == "rw", o == "ro", o == "relatime", strings.HasPrefix(o, "no"):
			case strings.HasPrefix(o, "name="):
				options = append(options, "none", o)
			default:
				options = append(options, o)
			}
		}
		all = append(all, cgroupMount{f[1], f[2], strings.Join(options, ",")})
	}
	if len(all) == 0 {
		return nil, errors.New("no cgroups are mounted")
	}
	return all, nil
}
