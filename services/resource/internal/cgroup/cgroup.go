// Package cgroup makes and removes the cgroups of the node's pods: kubepods, its
// quality classes, and one for each pod, on cgroup v1 and v2, by files or by
// systemd. Every step is idempotent.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
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
	return r
}

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
	if pids := t.processes(name); pids > 0 {
		return fmt.Errorf("cgroup %s still holds %d processes", name.Path(t.Driver), pids)
	}
	if err := m.Destroy(); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", name.Path(t.Driver), err)
	}
	return nil
}

// Exists tells whether a cgroup is there, in every hierarchy it belongs to.
func (t Tree) Exists(name pod.CgroupName) bool {
	m, err := t.manager(name, Values{})
	return err == nil && m.Exists()
}

func (t Tree) processes(name pod.CgroupName) int {
	m, err := t.manager(name, Values{})
	if err != nil || !m.Exists() {
		return 0
	}
	pids, err := m.GetAllPids()
	if err != nil {
		return 0
	}
	return len(pids)
}

// Pods lists the pods' cgroups found below kubepods, by UID.
func (t Tree) Pods(root pod.CgroupName) (map[string]pod.CgroupName, error) {
	found := map[string]pod.CgroupName{}
	kubepods := pod.KubepodsCgroup(root)
	for _, hierarchy := range hierarchies() {
		top := filepath.Join(hierarchy, kubepods.Path(t.Driver))
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !d.IsDir() {
				return err
			}
			name := pod.ParseCgroupPath(strings.TrimPrefix(path, hierarchy), t.Driver)
			if uid, ok := pod.ParsePodCgroup(name); ok {
				found[string(uid)] = name
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list cgroups: %w", err)
		}
	}
	return found, nil
}

// hierarchies are the mount points that hold pods' cgroups.
func hierarchies() []string {
	const mounts = "/sys/fs/cgroup"
	if cgroups.IsCgroup2UnifiedMode() {
		return []string{mounts}
	}
	var all []string
	for _, controller := range []string{"memory", "cpu", "pids"} {
		dir := filepath.Join(mounts, controller)
		if _, err := os.Stat(dir); err == nil {
			all = append(all, dir)
		}
	}
	return all
}

// Unlimited is for Values that lift a limit.
var Unlimited = ptr.To[int64](-1)
