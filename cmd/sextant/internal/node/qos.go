package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/cgroups/systemd"
	"golang.org/x/sys/unix"
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
	var all []error
	for _, class := range []v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed} {
		name := pod.QOSCgroup(root, class)
		for _, driver := range []pod.CgroupDriver{pod.Systemd, pod.Cgroupfs} {
			dirs := unused(hierarchies, name.Path(driver))
			if len(dirs) > 0 && driver == pod.Systemd && stop != nil {
				all = append(all, stop(ctx, name.Slice()))
			}
			for _, dir := range dirs {
				if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EBUSY) {
					all = append(all, err)
				}
			}
		}
	}
	return errors.Join(all...)
}

// unused are the cgroups of a path; none if there is another cgroup in any of them.
func unused(hierarchies []string, path string) (dirs []string) {
	for _, hierarchy := range hierarchies {
		dir := filepath.Join(hierarchy, path)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // not there
		}
		for _, e := range entries {
			if e.IsDir() {
				return nil
			}
		}
		dirs = append(dirs, dir)
	}
	return dirs
}
