// Package cgroup makes and removes the cgroups of the node's pods: kubepods, its
// quality classes, and one for each pod, on cgroup v1 and v2, by files or by
// systemd. Every step is idempotent.
package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Tree makes cgroups with one driver.
type Tree struct{ Driver pod.CgroupDriver }

// Values of a cgroup beyond a pod's own.
type Values struct {
	pod.CgroupResources
	// PIDs is the most processes; nil leaves it, -1 is unlimited.
	PIDs *int64
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
	if v.CPUQuota != nil {
		r.CpuQuota = *v.CPUQuota
	}
	if v.CPUPeriod != nil {
		r.CpuPeriod = *v.CPUPeriod
	}
	if v.Memory != nil {
		r.Memory = *v.Memory
	}
	r.PidsLimit = v.PIDs
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

// hugePagesControlled tells whether the hugetlb controller is where pods'
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
	// A pid of -1 makes the cgroup and puts nobody into it.
	if err := m.Apply(-1); err != nil {
		return fmt.Errorf("make cgroup %s: %w", name.Path(t.Driver), err)
	}
	if err := m.Set(resources(values)); err != nil {
		return fmt.Errorf("set cgroup %s: %w", name.Path(t.Driver), err)
	}
	return nil
}

// Remove removes a cgroup and those below it. One that still holds processes is
// an error that says how many.
func (t Tree) Remove(name pod.CgroupName) error {
	m, err := t.manager(name, Values{})
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", name.Path(t.Driver), err)
	}
	if n := processes(m); n > 0 {
		return fmt.Errorf("cgroup %s still holds %d processes", name.Path(t.Driver), n)
	}
	if err := m.Destroy(); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", name.Path(t.Driver), err)
	}
	return nil
}

// Exists tells whether a cgroup is there, in any hierarchy.
func (t Tree) Exists(name pod.CgroupName) bool {
	m, err := t.manager(name, Values{})
	return err == nil && len(existing(m)) > 0
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
