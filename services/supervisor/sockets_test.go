// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"log/slog"
	"net"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSocketsAreHeld: a process gets the same sockets at each start, until one is
// given up by the process that had it.
func TestSocketsAreHeld(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addresses := map[string]string{"a": "127.0.0.1:0", "b": "127.0.0.1:0", "taken": taken.Addr().String()}
	held := &heldSockets{}
	pass := func() *exec.Cmd {
		cmd := &exec.Cmd{}
		held.pass(cmd, addresses, slog.New(slog.DiscardHandler))
		return cmd
	}
	first, second := pass(), pass()
	if want := []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=a:b"}; !slices.Equal(first.Env, want) || !slices.Equal(second.Env, want) {
		t.Errorf("told %q, then %q", first.Env, second.Env)
	}
	if len(first.ExtraFiles) != 2 || !slices.Equal(first.ExtraFiles, second.ExtraFiles) {
		t.Errorf("passed %v, then %v", first.ExtraFiles, second.ExtraFiles)
	}
	if err := unix.Shutdown(int(first.ExtraFiles[0].Fd()), unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if cmd := pass(); !slices.Equal(cmd.Env, []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=b"}) || len(cmd.ExtraFiles) != 1 {
			t.Errorf("after one was given up: %q, %v", cmd.Env, cmd.ExtraFiles)
		}
	}
	for _, file := range held.files {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := withoutSystemd([]string{"LISTEN_PID=1", "LISTEN_FDS=3", "A=b", "NOTIFY_SOCKET=/n", "WATCHDOG_USEC=1", "WATCHDOG_PID=1"}); !slices.Equal(got, []string{"A=b"}) {
		t.Errorf("environment %q", got)
	}
}
