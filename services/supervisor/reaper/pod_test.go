// SPDX-License-Identifier: Apache-2.0

package reaper

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// place makes a cgroup in every hierarchy and moves a process into it.
func place(t *testing.T, name pod.CgroupName, driver pod.CgroupDriver, pid int) {
	t.Helper()
	mounts := []string{"/sys/fs/cgroup"}
	if !cgroups.IsCgroup2UnifiedMode() {
		mounts = []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory"}
	}
	for _, mount := range mounts {
		dir := filepath.Join(mount, name.Path(driver))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for path := dir; path != mount; path = filepath.Dir(path) {
				if err := cgroups.RemovePath(path); err != nil {
					t.Errorf("left over: %v", err)
				}
			}
		})
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEndPod: what is in a pod's cgroup, and below it, is killed with what it forks
// meanwhile; what is in another pod's is not.
func TestEndPod(t *testing.T) {
	for _, driver := range []pod.CgroupDriver{pod.Cgroupfs, pod.Systemd} {
		t.Run(string(driver), func(t *testing.T) {
			root := pod.CgroupName{fmt.Sprintf("sextant-test-%d", os.Getpid())}
			r := &Reaper{Root: root, Log: slog.New(slog.DiscardHandler)}
			run := func(script string) (pid int, ended chan error) {
				cmd := exec.Command("sh", "-c", script)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				ended = make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				t.Cleanup(func() {
					_ = cmd.Process.Kill() // it may have ended
				})
				return cmd.Process.Pid, ended
			}
			busy, busyEnded := run("trap '' TERM; while true; do sleep 0.01; done")
			place(t, pod.PodCgroupOf(root, v1.PodQOSBurstable, types.UID("8a-1")).Child("c"), driver, busy)
			other, otherEnded := run("sleep 1000")
			place(t, pod.PodCgroupOf(root, v1.PodQOSBurstable, types.UID("8a-2")), driver, other)
			resp, err := r.EndPod(t.Context(), &supervisorv1.EndPodRequest{PodUid: "8a-1"})
			if err != nil || resp.GetKilled() < 1 {
				t.Errorf("%v, %v", resp, err)
			}
			<-busyEnded
			if resp, err := r.EndPod(t.Context(), &supervisorv1.EndPodRequest{PodUid: "8a-1"}); err != nil || resp.GetKilled() != 0 {
				t.Errorf("an empty one: %v, %v", resp, err)
			}
			select {
			case <-otherEnded:
				t.Error("another pod's process was killed")
			default:
			}
			if _, err := r.EndPod(t.Context(), &supervisorv1.EndPodRequest{PodUid: "8a-2"}); err != nil {
				t.Error(err)
			}
			select {
			case <-otherEnded:
			case <-time.After(2 * time.Minute):
				t.Error("it runs still")
			}
		})
	}
}

func TestEndPodRefuses(t *testing.T) {
	r := &Reaper{Root: pod.CgroupName{"no-such-node"}, Log: slog.New(slog.DiscardHandler)}
	for uid, kind := range map[string]rpc.Kind{"": rpc.Invalid, "../x": rpc.Invalid, "a_b": rpc.Invalid, "..": rpc.Invalid, "8a-1": rpc.NotFound} {
		if _, err := r.EndPod(t.Context(), &supervisorv1.EndPodRequest{PodUid: uid}); !rpc.Is(err, kind) {
			t.Errorf("%q: %v, want %v", uid, err, kind)
		}
	}
}
