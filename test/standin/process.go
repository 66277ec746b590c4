// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"os"
	"os/exec"
	"syscall"
)

// Process is the test's own binary as a process that is to be killed.
type Process struct {
	h     *House
	cmd   *exec.Cmd
	ended chan struct{}
}

// Spawn starts the test's own binary with more in its environment. It is killed when the
// test ends.
func (h *House) Spawn(env ...string) *Process {
	h.Helper()
	p := &Process{h: h, cmd: exec.Command("/proc/self/exe"), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		h.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.cmd.Wait() //nolint:errcheck // Dies looks at how it ended
	}()
	h.Cleanup(p.Kill)
	return p
}

// Strike kills it as by kill -9, without waiting for its end.
func (p *Process) Strike() { p.cmd.Process.Kill() } //nolint:errcheck // it may have ended

// Kill kills it as by kill -9, if it lives.
func (p *Process) Kill() {
	p.Strike()
	<-p.ended
}

// Dies waits until it was killed, or something is so, and says which.
func (p *Process) Dies(unless func() bool) (dies bool) {
	p.h.Helper()
	p.h.Eventually("the process is killed", func() bool {
		select {
		case <-p.ended:
			dies = true
		default:
		}
		return dies || unless()
	})
	if dies {
		if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			p.h.Fatalf("the process ended: %v", p.cmd.ProcessState)
		}
	}
	return dies
}

// Never is for Dies.
func Never() bool { return false }
