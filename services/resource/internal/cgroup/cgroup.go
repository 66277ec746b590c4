// SPDX-License-Identifier: Apache-2.0

// Package cgroup makes and removes the cgroups of the node's pods: kubepods, its
// quality classes, and one for each pod, on cgroup v1 and v2, by files or by
// systemd. Every step is idempotent.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Tree makes cgroups with one driver.
type Tree struct{ Driver pod.CgroupDriver }

// Values of a cgroup beyond a pod's own.
type Values struct {
	pod.CgroupResources
	// PIDs is the most processes; nil leaves it, -1 is unlimited.
	PIDs *int64
	// Unified are files of version 2 with what they get, nil on version 1.
	Unified map[string]string
}

func (t Tree) manager(name pod.CgroupName, values Values) (cgroups.Manager, error) {
	config := &cgroups.Cgroup{Resources: resources(values)}
	if t.Driver == pod.Systemd {
		config.Systemd = true
		config.Name = name.Slice()
		config.Parent = name[:len(name)-1].Slice()
	} else {
		config.Path = name.Path(t.Driver)
	}
	return manager.New(config)
}

func resources(v Values) *cgroups.Resources {
	// Devices are the containers' affair.
	r := &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true}
	if v.CPUShares != nil {
		r.CpuShares = *v.CPUShares
		if cgroups.IsCgroup2UnifiedMode() {
			r.CpuWeight = pod.SharesToWeight(*v.CPUShares)
		}
	}
	r.CpuQuota, r.CpuPeriod, r.Memory = ptr.Deref(v.CPUQuota, 0), ptr.Deref(v.CPUPeriod, 0), ptr.Deref(v.Memory, 0)
	r.PidsLimit, r.Unified = v.PIDs, v.Unified
	if v.HugePages != nil && hugePagesControlled() {
		// A pod gets none of the sizes it does not ask for.
		for _, size := range cgroups.HugePageSizes() {
			r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: size})
		}
		for size, limit := range v.HugePages {
			unit := pod.HugePageUnit(size)
			i := slices.IndexFunc(r.HugetlbLimit, func(l *cgroups.HugepageLimit) bool { return l.Pagesize == unit })
			if i >= 0 {
				r.HugetlbLimit[i].Limit = uint64(limit)
			}
		}
	}
	return r
}

// hugePagesControlled reports whether the hugetlb controller is where pods'
// cgroups are.
func hugePagesControlled() bool {
	if !cgroups.IsCgroup2UnifiedMode() {
		_, err := os.Stat(filepath.Join(mounts, "hugetlb", "cgroup.procs"))
		return err == nil
	}
	controllers, err := os.ReadFile(filepath.Join(mounts, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "hugetlb")
}

const mounts = "/sys/fs/cgroup"

// Ensure makes a cgroup, below parents that exist, with these values.
func (t Tree) Ensure(name pod.CgroupName, values Values) error {
	m, err := t.manager(name, values)
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", name.Path(t.Driver), err)
	}
	// A pid of -1 makes the cgroup and puts no process into it.
	if err := m.Apply(-1); err != nil {
		return fmt.Errorf("make cgroup %s: %w", name.Path(t.Driver), err)
	}
	if err := m.Set(resources(values)); err != nil {
		return fmt.Errorf("set cgroup %s: %w", name.Path(t.Driver), err)
	}
	return nil
}

// Set gives a cgroup that is there already these values, and makes none. Its files are
// written whatever the driver: it is the administrator's, and no slice of Sextant's.
func (t Tree) Set(name pod.CgroupName, values Values) error {
	path := name.Path(t.Driver)
	m, err := manager.New(&cgroups.Cgroup{Path: path, Resources: resources(values)})
	if err == nil && len(existing(m)) == 0 {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = m.Set(resources(values))
	}
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", path, err)
	}
	return nil
}

// MemoryUsage is what a cgroup uses of memory, in bytes.
func (t Tree) MemoryUsage(name pod.CgroupName) (int64, error) {
	return t.memory(name, "memory.usage_in_bytes", "memory.current")
}

// MemoryLimit is what a cgroup may use of memory, in bytes. Where it has no limit, that is
// more than any machine has.
func (t Tree) MemoryLimit(name pod.CgroupName) (int64, error) {
	return t.memory(name, "memory.limit_in_bytes", "memory.max")
}

// memory reads a file of the memory controller, as it is called on version 1 or 2.
func (t Tree) memory(name pod.CgroupName, one, two string) (int64, error) {
	m, err := t.manager(name, Values{})
	if err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", name.Path(t.Driver), err)
	}
	file := filepath.Join(m.Path("memory"), one)
	if cgroups.IsCgroup2UnifiedMode() {
		file = filepath.Join(m.Path(""), two)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return math.MaxInt64, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// BusyError is why a cgroup is not removed: it holds processes.
type BusyError struct {
	Path      string
	Processes int
}

// Error implements error.
func (e *BusyError) Error() string {
	return fmt.Sprintf("cgroup %s still holds %d processes", e.Path, e.Processes)
}

// Remove removes a cgroup and those below it. The error for one that still holds
// processes is a BusyError.
func (t Tree) Remove(name pod.CgroupName) error {
	m, err := t.manager(name, Values{})
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", name.Path(t.Driver), err)
	}
	if n := processes(m); n > 0 {
		return &BusyError{name.Path(t.Driver), n}
	}
	if err := m.Destroy(); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", name.Path(t.Driver), err)
	}
	return nil
}

// Kill kills every process in a cgroup and below it. Only version 2 can, since Linux
// 5.14 (cgroup.kill in cgroups(7)): false where it cannot.
func (t Tree) Kill(name pod.CgroupName) (done bool, err error) {
	m, err := t.manager(name, Values{})
	if err != nil {
		return false, fmt.Errorf("cgroup %s: %w", name.Path(t.Driver), err)
	}
	for _, dir := range existing(m) {
		if done, err := kill(dir); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// kill kills what is in a folder of a cgroup and below it, where the kernel does that.
func kill(dir string) (done bool, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.kill"), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		_, err = f.WriteString("1")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return false, fmt.Errorf("kill what is in the cgroup: %w", err)
	}
	return true, nil
}

// Exists reports whether a cgroup is there, in any hierarchy.
func (t Tree) Exists(name pod.CgroupName) bool {
	m, err := t.manager(name, Values{})
	return err == nil && len(existing(m)) > 0
}

// Begun reports whether a cgroup has others below it, in any hierarchy: those of containers
// are made when a runtime starts them, and none outlives a boot.
func (t Tree) Begun(name pod.CgroupName) bool {
	m, err := t.manager(name, Values{})
	if err != nil {
		return false
	}
	return slices.ContainsFunc(existing(m), func(dir string) bool {
		entries, _ := os.ReadDir(dir) // it may go meanwhile
		return slices.ContainsFunc(entries, fs.DirEntry.IsDir)
	})
}

// Pods are the UIDs of the pods that have a cgroup right below a parent, in any
// hierarchy, sorted.
func (t Tree) Pods(parent pod.CgroupName) ([]types.UID, error) {
	m, err := t.manager(parent, Values{})
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", parent.Path(t.Driver), err)
	}
	var all []types.UID
	for _, dir := range existing(m) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("pods' cgroups: %w", err)
		}
		for _, e := range entries {
			if uid, ok := parent.PodOf(e.Name(), t.Driver); ok && e.IsDir() {
				all = append(all, uid)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// existing are a cgroup's folders. The manager's own question goes to the
// devices hierarchy alone, where pods have none.
func existing(m cgroups.Manager) []string {
	var dirs []string
	for _, dir := range m.GetPaths() {
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// processes counts those in a cgroup and below it, in all hierarchies.
func processes(m cgroups.Manager) int {
	all := map[int]bool{}
	for _, dir := range existing(m) {
		pids, err := cgroups.GetAllPids(dir)
		if err != nil {
			continue // it went meanwhile
		}
		for _, pid := range pids {
			all[pid] = true
		}
	}
	return len(all)
}
