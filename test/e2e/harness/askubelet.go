// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// AsKubelet is a node whose program is called kubelet, and runs in the foreground.
type AsKubelet struct {
	// Log is the file that has its stdout and stderr.
	Log     string
	process *process
}

// UpAsKubelet starts the node by a link to the program called kubelet, with a kubelet's
// arguments, and returns when all services serve.
func (n *Node) UpAsKubelet(t testing.TB, args ...string) *AsKubelet {
	t.Helper()
	link := filepath.Join(n.dir, "bin", "kubelet")
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(n.binary, link); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	own := slices.DeleteFunc(slices.Clone(n.args), func(arg string) bool {
		return !strings.HasPrefix(arg, "--run-dir=") && !strings.HasPrefix(arg, "--state-dir=") && arg != "--bus=off"
	})
	k := &AsKubelet{Log: filepath.Join(n.dir, "kubelet.log")}
	p, err := start("kubelet", k.Log, "/usr/bin/env", append(append([]string{"SEXTANT_ARGS=" + strings.Join(own, " "), link}, n.flags...), args...)...)
	if err != nil {
		t.Fatal(err)
	}
	k.process = p
	t.Cleanup(func() { _ = p.kill(context.WithoutCancel(t.Context())) }) // it may have ended
	if err := p.ready(t.Context(), 3*time.Minute, n.Serving); err != nil {
		t.Fatal(err)
	}
	return k
}

// Signal sends a signal to every process of the node at once, as `systemctl kill` does,
// and returns the exit code of the first one.
func (k *AsKubelet) Signal(t testing.TB, n *Node, sig syscall.Signal) int {
	t.Helper()
	pids := []int{k.process.cmd.Process.Pid}
	for _, p := range n.Processes() {
		pids = append(pids, p.PID)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && err != syscall.ESRCH {
			t.Fatalf("signal to %d: %v", pid, err)
		}
	}
	select {
	case <-k.process.done:
	case <-time.After(2 * time.Minute):
		t.Fatalf("kubelet goes on after signal %d; its log ends:\n%s", sig, Tail(k.Log, 20))
	}
	return k.process.cmd.ProcessState.ExitCode()
}
