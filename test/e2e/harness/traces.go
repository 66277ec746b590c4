// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/test/localruntime"
)

// traces are what a lab has on the machine: by its directory, and by the names
// that begin with its id.
type traces struct{ dir, id string }

// Traces lists what is on the machine of something that has all its files below
// dir and whose cgroups and interfaces have names that begin with prefix:
// processes, mounts, cgroups, interfaces, host port rules. The test itself is
// left out.
func Traces(dir, prefix string) []string { return traces{dir, prefix}.find() }

// nothingLeft reports every trace of a lab that is still there after a while.
func nothingLeft(ctx context.Context, dir, id string) error {
	return eventually(ctx, 3*time.Minute, func(context.Context) error {
		var errs []error
		for _, left := range (traces{dir, id}).find() {
			errs = append(errs, errors.New("left behind: "+left))
		}
		return errors.Join(errs...)
	})
}

func (t traces) find() []string {
	var found []string
	add := func(kind string, names []string) {
		for _, n := range names {
			found = append(found, kind+" "+n)
		}
	}
	for _, pid := range t.processes() {
		cmd, _ := os.ReadFile(procFile(pid, "cmdline"))
		add("process", []string{fmt.Sprintf("%d: %s", pid, bytes.ReplaceAll(cmd, []byte{0}, []byte(" ")))})
	}
	add("mount", t.mounts())
	add("cgroup", t.cgroups())
	add("interface", glob("/sys/class/net/"+t.id+"*"))
	add("network result", glob("/var/lib/cni/results/"+t.id+"*"))
	add("rule", t.rules())
	return found
}

func glob(pattern string) []string {
	files, _ := filepath.Glob(pattern) // the patterns are well formed
	return files
}

func procFile(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}

func allPIDs() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processes finds what was started from the lab, has it in its arguments or is
// in one of its cgroups, this process aside.
func (t traces) processes() []int {
	var found []int
	for _, pid := range allPIDs() {
		if pid != os.Getpid() && t.owns(pid) {
			found = append(found, pid)
		}
	}
	return found
}

func (t traces) owns(pid int) bool {
	// Not by its arguments: a process has none for a moment after it began.
	if _, err := os.Readlink(procFile(pid, "exe")); err != nil {
		return false // gone, a zombie, or the kernel's
	}
	if cmd, err := os.ReadFile(procFile(pid, "cmdline")); err == nil && bytes.Contains(cmd, []byte(t.dir+"/")) {
		return true
	}
	if cg, err := os.ReadFile(procFile(pid, "cgroup")); err == nil && bytes.Contains(cg, []byte("/"+t.id)) {
		return true
	}
	for _, link := range []string{"exe", "cwd", "root"} {
		if target, err := os.Readlink(procFile(pid, link)); err == nil && strings.HasPrefix(target, t.dir+"/") {
			return true
		}
	}
	return false
}

func (t traces) mounts() []string {
	var found []string
	for _, f := range mountFields() {
		if strings.HasPrefix(f[4], t.dir+"/") {
			found = append(found, f[4])
		}
	}
	return found
}

// Mounts lists the mount points whose path has a part of that name or begins
// with that path.
func Mounts(part string) []string {
	var found []string
	for _, f := range mountFields() {
		if strings.Contains(f[4]+"/", strings.TrimSuffix(part, "/")+"/") {
			found = append(found, f[4])
		}
	}
	return found
}

// mountFields splits each line of /proc/self/mountinfo; there are ten or more.
func mountFields() [][]string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var all [][]string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 10 {
			all = append(all, f)
		}
	}
	return all
}

func (t traces) cgroups() []string {
	var found []string
	for _, f := range mountFields() {
		kind := f[len(f)-3]
		if strings.HasPrefix(kind, "cgroup") {
			found = append(found, glob(filepath.Join(f[4], t.id+"*"))...)
		}
	}
	return found
}

func (t traces) rules() []string {
	out, err := exec.Command("iptables", "-w", "-t", "nat", "-S").Output()
	if err != nil {
		return nil // no nat table, no rules
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, t.id) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// sweepLab removes the lab of a test process that was killed.
func sweepLab(ctx context.Context, dir string) error {
	id := labID(dir)
	t := traces{dir, id}
	for _, rt := range glob(filepath.Join(dir, "rt*", "runtime.json")) {
		if err := localruntime.Teardown(ctx, localruntime.Config{Dir: filepath.Dir(rt)}); err != nil {
			return err
		}
	}
	err := eventually(ctx, 3*time.Minute, func(context.Context) error {
		left := t.processes()
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL) // gone already is as good
		}
		if len(left) > 0 {
			return fmt.Errorf("processes %v do not end", left)
		}
		return nil
	})
	errs := []error{err}
	mounts := t.mounts()
	for i := len(mounts) - 1; i >= 0; i-- {
		if err := unix.Unmount(mounts[i], unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", mounts[i], err))
		}
	}
	for _, c := range t.cgroups() {
		errs = append(errs, removeCgroup(c))
	}
	for _, link := range glob("/sys/class/net/" + id + "*") {
		errs = append(errs, deleteLink(filepath.Base(link)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// removeCgroup removes a cgroup and those in it; their files go by themselves.
func removeCgroup(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	errs := []error{err}
	for i := len(dirs) - 1; i >= 0; i-- {
		errs = append(errs, unix.Rmdir(dirs[i]))
	}
	return errors.Join(errs...)
}
