package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/cgroups/systemd"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// removeClasses removes the cgroups of the QoS classes below the root that all agents
// of a machine share, as far as there is no pod in them: they outlive their pods.
// A root of the node's own is removed as a whole.
func (p *Plan) removeClasses(ctx context.Context) error {
	root, err := pod.ParseCgroupRoot(p.CgroupRoot)
	if err != nil || len(root) > 0 {
		return err
	}
	stop := stopUnit
	if !systemd.IsRunningSystemd() {
		stop = nil
	}
	return removeClassesBelow(ctx, "/sys/fs/cgroup", root, stop)
}

// removeClassesBelow is removeClasses for the cgroups mounted in a folder. stop ends
// a slice; nil where nobody keeps slices.
func removeClassesBelow(ctx context.Context, mount string, root pod.CgroupName, stop func(ctx context.Context, slice string) error) error {
	hierarchies, err := filepath.Glob(filepath.Join(mount, "*")) // of version 1
	if err != nil {
		return err
	}
	hierarchies = append(hierarchies, mount)
	limit, cancel := context.WithTimeout(ctx, cgroupLimit)
	defer cancel()
	tick := time.NewTicker(cgroupPause)
	defer tick.Stop()
	var all []error
	for _, class := range []v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed} {
		name := pod.QOSCgroup(root, class)
		for _, driver := range []pod.CgroupDriver{pod.Systemd, pod.Cgroupfs} {
			dirs := existing(hierarchies, name.Path(driver))
			// The pods' cgroups are about to go, where they are not another agent's.
			for slices.ContainsFunc(dirs, hasChild) && limit.Err() == nil {
				select {
				case <-limit.Done():
				case <-tick.C:
				}
			}
			if len(dirs) == 0 || slices.ContainsFunc(dirs, hasChild) {
				continue
			}
			if driver == pod.Systemd && stop != nil {
				all = append(all, stop(ctx, name.Slice()))
			}
			for _, dir := range dirs {
				all = append(all, removeCgroup(limit, dir))
			}
		}
	}
	return errors.Join(all...)
}

func existing(hierarchies []string, path string) (dirs []string) {
	for _, hierarchy := range hierarchies {
		dir := filepath.Join(hierarchy, path)
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// hasChild tells whether there is a cgroup below another.
func hasChild(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, fs.DirEntry.IsDir)
}
