// SPDX-License-Identifier: Apache-2.0

package reaper

import (
	"log/slog"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

func TestRefusesWhatIsNoContainer(t *testing.T) {
	r := &Reaper{Root: []string{"no-such-node"}, Log: slog.New(slog.DiscardHandler)}
	id := strings.Repeat("ab", 32)
	for name, tc := range map[string]struct {
		req  *supervisorv1.EndExecRequest
		kind rpc.Kind
	}{
		"no ID":       {&supervisorv1.EndExecRequest{Command: []string{"x"}, Began: durationpb.New(1)}, rpc.Invalid},
		"a path":      {&supervisorv1.EndExecRequest{ContainerId: "../../" + id, Command: []string{"x"}, Began: durationpb.New(1)}, rpc.Invalid},
		"short":       {&supervisorv1.EndExecRequest{ContainerId: "ab", Command: []string{"x"}, Began: durationpb.New(1)}, rpc.Invalid},
		"no command":  {&supervisorv1.EndExecRequest{ContainerId: id, Began: durationpb.New(1)}, rpc.Invalid},
		"no time":     {&supervisorv1.EndExecRequest{ContainerId: id, Command: []string{"x"}}, rpc.Invalid},
		"of nobody's": {&supervisorv1.EndExecRequest{ContainerId: id, Command: []string{"x"}, Began: durationpb.New(1)}, rpc.NotFound},
	} {
		if _, err := r.EndExec(t.Context(), tc.req); !rpc.Is(err, tc.kind) {
			t.Errorf("%s: %v, want %v", name, err, tc.kind)
		}
	}
}

func TestKillsTheOneThatWasSeen(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	seen, err := read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if seen.Session != seen.PID || seen.Start <= 0 {
		t.Errorf("read %+v", seen)
	}
	another := seen
	another.Start += time.Second
	if err := send(another, unix.SIGKILL); err != nil {
		t.Errorf("another of that id: %v", err)
	}
	select {
	case <-ended:
		t.Fatal("a process of another start was killed")
	default:
	}
	if err := send(seen, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := send(seen, unix.SIGKILL); err != nil {
		t.Errorf("one that has ended: %v", err)
	}
}
