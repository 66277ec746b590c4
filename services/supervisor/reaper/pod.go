// SPDX-License-Identifier: Apache-2.0

package reaper

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// EndPod implements supervisorv1.SupervisorServiceServer. It kills until the pod's
// cgroup is empty: the processes may fork meanwhile.
func (r *Reaper) EndPod(ctx context.Context, req *supervisorv1.EndPodRequest) (*supervisorv1.EndPodResponse, error) {
	uid := req.GetPodUid()
	if uid == "" || strings.ContainsAny(uid, "/_\x00") || strings.HasPrefix(uid, ".") {
		return nil, rpc.Invalid.Errorf("pod_uid: %q cannot be part of a cgroup's name", uid)
	}
	dirs := podCgroups(r.Root, types.UID(uid))
	if len(dirs) == 0 {
		return nil, rpc.NotFound.Errorf("pod %s has no cgroup", uid)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type one struct {
		pid   int
		start time.Duration
	}
	seen := map[one]bool{}
	for {
		left := 0
		for _, dir := range dirs {
			all, err := processes(dir)
			if err != nil {
				continue // the cgroup has gone
			}
			for _, p := range all {
				left++
				seen[one{p.PID, p.Start}] = true
				if err := send(p, unix.SIGKILL); err != nil {
					return nil, err
				}
			}
		}
		if left == 0 {
			r.Log.WarnContext(ctx, "killed processes left in the pod's cgroup", "pod", uid, "processes", len(seen))
			return &supervisorv1.EndPodResponse{Killed: int32(len(seen))}, nil
		}
		select {
		case <-ctx.Done():
			return nil, rpc.Unavailable.Errorf("pod %s: %d processes outlive SIGKILL", uid, left)
		case <-time.After(again):
		}
	}
}

// podCgroups are the folders of a pod's cgroup: of any class, made by either driver, in
// every hierarchy.
func podCgroups(root pod.CgroupName, uid types.UID) []string {
	mounts := []string{"/sys/fs/cgroup"}
	if !cgroups.IsCgroup2UnifiedMode() {
		mounts, _ = filepath.Glob("/sys/fs/cgroup/*") // the pattern is a good one
	}
	var found []string
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		for _, driver := range []pod.CgroupDriver{pod.Cgroupfs, pod.Systemd} {
			for _, mount := range mounts {
				dir := filepath.Join(mount, pod.PodCgroupOf(root, class, uid).Path(driver))
				if info, err := os.Stat(dir); err == nil && info.IsDir() {
					found = append(found, dir)
				}
			}
		}
	}
	return found
}
