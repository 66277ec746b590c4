// SPDX-License-Identifier: Apache-2.0

package reaper

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// TestEndsWhatForks: a command that is ended while it forks children which leave its
// session leaves none of them behind.
func TestEndsWhatForks(t *testing.T) {
	root := pod.CgroupName{fmt.Sprintf("sextant-forks-%d", os.Getpid())}
	r := &Reaper{Root: root, Log: slog.New(slog.DiscardHandler)}
	for round := range 3 {
		id := strings.Repeat(fmt.Sprintf("%02x", round), 32)
		cgroup := pod.PodCgroupOf(root, v1.PodQOSBurstable, types.UID("8a-3")).Child(id)
		command := []string{"sh", "-c", "read go; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); setsid sleep 1000 & done; wait"}
		cmd := exec.Command(command[0], command[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		begin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		place(t, cgroup, pod.Cgroupfs, cmd.Process.Pid)
		t.Cleanup(func() { end(t, r, id) })
		if err := begin.Close(); err != nil { // read fails, and it begins
			t.Fatal(err)
		}
		for {
			all, err := r.inside(id)
			if err != nil {
				t.Fatal(err)
			}
			if len(all) > 300 {
				break
			}
		}
		resp, err := r.EndExec(t.Context(), &supervisorv1.EndExecRequest{ContainerId: id, Command: command, Began: durationpb.New(1)})
		if err != nil || resp.GetKilled() < 300 {
			t.Errorf("round %d: %v, %v", round, resp, err)
		}
		_ = cmd.Wait() // it was killed
		if left, err := r.inside(id); err != nil || len(left) > 0 {
			t.Errorf("round %d: %d processes outlive the command, of %d (%v)", round, len(left), len(left)+int(resp.GetKilled()), err)
		}
	}
}

// end kills what a test has left in a cgroup.
func end(t *testing.T, r *Reaper, id string) {
	t.Helper()
	all, err := r.inside(id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, p := range all {
		if err := send(p, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
}
