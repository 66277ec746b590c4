// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// sharedRoot is where the cgroups of all agents' pods are.
type sharedRoot struct {
	hierarchies hierarchies
	// stop stops a slice; nil without systemd's slices.
	stop func(ctx context.Context, slice string) error
}

func (s sharedRoot) leave(ctx context.Context, pods []string) error {
	var all []error
	classes := []v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed}
	for _, uid := range pods {
		for _, class := range classes {
			all = append(all, s.remove(ctx, pod.PodCgroupOf(nil, class, types.UID(uid)), false))
		}
	}
	for _, class := range classes {
		all = append(all, s.remove(ctx, pod.QOSCgroup(nil, class), true))
	}
	return errors.Join(all...)
}

// remove removes a cgroup, whichever driver made it, and what is below it; empty:
// only if nothing is.
func (s sharedRoot) remove(ctx context.Context, name pod.CgroupName, empty bool) error {
	var all []error
	for _, driver := range []pod.CgroupDriver{pod.Systemd, pod.Cgroupfs} {
		dirs := s.hierarchies.at(name.Path(driver))
		if len(dirs) == 0 || empty && slices.ContainsFunc(dirs, hasChild) {
			continue
		}
		if driver == pod.Systemd && s.stop != nil {
			all = append(all, s.stop(ctx, name.Slice()))
		}
		all = append(all, removeCgroupTrees(ctx, dirs))
	}
	return errors.Join(all...)
}

// hasChild reports whether there is a cgroup below another.
func hasChild(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, fs.DirEntry.IsDir)
}
