// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"io"
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
// test ends. As with a unit of systemd, it has ended when all that it started has.
func (h *House) Spawn(env ...string) *Process {
	h.Helper()
	p := &Process{h: h, cmd: exec.Command("/proc/self/exe"), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = os.Stderr
	alive, held, err := os.Pipe() // whatever it starts inherits the end that is held
	if err != nil {
		h.Fatal(err)
	}
	p.cmd.ExtraFiles = []*os.File{held}
	err = p.cmd.Start()
	held.Close() //nolint:errcheck // the process has it
	if err != nil {
		h.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.cmd.Wait()               //nolint:errcheck // Dies looks at how it ended
		io.Copy(io.Discard, alive) //nolint:errcheck // nothing is written: it ends with the last of them
		alive.Close()              //nolint:errcheck // nothing was written
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
