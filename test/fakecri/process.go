// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/fakecri/internal/shell"
)

// wellBehaved is the program of an image that has none of its own.
const wellBehaved = "trap 'exit 0' TERM; sleep infinity"

// launch starts the process of a container; an error is what runc would say.
// The caller holds mu.
func (r *Runtime) launch(c *container) error {
	if r.over {
		return errors.New("the runtime has ended")
	}
	script, args, err := program(c.image, c.config.GetCommand(), c.config.GetArgs())
	if err != nil {
		return err
	}
	out, errw := io.Discard, io.Discard
	if c.logPath != "" {
		l, err := openLog(c.logPath, r.now)
		if err != nil {
			return fmt.Errorf("failed to create container loggers: %w", err)
		}
		c.log = l
		out, errw = l.stream("stdout"), l.stream("stderr")
	}
	c.out, c.err = &fanout{log: out}, &fanout{log: errw}
	if c.config.GetTty() {
		c.err = c.out
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.kill = cancel
	c.state = runtimeapi.ContainerState_CONTAINER_RUNNING
	c.started = r.now()
	p := r.process(c, c.out, c.err)
	if c.config.GetStdin() {
		reader, writer := io.Pipe()
		c.stdin, p.In = writer, reader
	}
	p.Args, p.Init, p.Signals = args, true, c.signals
	r.busy++
	r.processes.Go(func() {
		exit := p.Run(ctx, script)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy--
		r.exited(c, exit)
		r.notify()
	})
	return nil
}

// process is what all processes of a container share.
func (r *Runtime) process(c *container, out, errw io.Writer) *shell.Proc {
	env := map[string]string{}
	for _, e := range c.config.GetEnvs() {
		env[e.GetKey()] = string(e.GetValue())
	}
	user := c.user()
	return &shell.Proc{
		Clock: r.cfg.Clock, Files: c.files, Out: out, Err: errw, Env: env,
		Hostname: c.sandbox.hostname(), UID: user.GetUid(), GID: user.GetGid(), Dir: c.config.GetWorkingDir(),
		Programs: c.image.program,
		KillInit: func(sig shell.Signal) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.signal(c, string(sig))
		},
		Blocked: func(blocked bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if blocked {
				r.busy--
				r.notify()
			} else {
				r.busy++
			}
		},
	}
}

// Settle waits until every process sleeps, waits or has ended: their timers
// are set and a fake clock may be stepped. After a step, wait for what shall
// come of it instead.
func (r *Runtime) Settle(ctx context.Context) error {
	return r.WaitFor(ctx, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.busy == 0
	})
}

// program finds what command and args mean in an image.
func program(img *imageRecord, command, args []string) (*shell.Script, []string, error) {
	if len(command) == 0 {
		own := img.script != ""
		if own || len(args) == 0 || !executable(img, args[0]) {
			script := img.script
			if !own {
				script = wellBehaved
			}
			s, err := shell.Parse(script)
			return s, args, err
		}
	}
	argv := append(append([]string(nil), command...), args...)
	if script, ok := img.program(argv[0]); ok {
		return script, argv, nil
	}
	switch {
	case shell.Builtin(argv[0]):
		// A shell given its script is the script: it is the first process itself.
		if base := argv[0][strings.LastIndexByte(argv[0], '/')+1:]; len(argv) >= 3 && strings.HasSuffix(base, "sh") && argv[1] == "-c" {
			s, err := shell.Parse(argv[2])
			return s, argv[min(3, len(argv)):], err
		}
		return shell.Command(argv...), argv, nil
	case strings.ContainsAny(argv[0], " ;\n"):
		s, err := shell.Parse(strings.Join(argv, " "))
		return s, nil, err
	}
	return nil, nil, startError("create", argv[0])
}

func executable(img *imageRecord, name string) bool {
	_, ok := img.program(name)
	return ok || shell.Builtin(name)
}

// startError is what runc says of a file that is not there.
func startError(verb, name string) error {
	why := "executable file not found in $PATH"
	if strings.Contains(name, "/") {
		why = "stat " + name + ": no such file or directory"
	}
	if verb == "create" {
		return fmt.Errorf("failed to create containerd task: failed to create shim task: OCI runtime create failed: "+
			"runc create failed: unable to start container process: exec: %q: %s: unknown", name, why)
	}
	return fmt.Errorf("OCI runtime exec failed: exec failed: unable to start container process: exec: %q: %s: unknown", name, why)
}

// signal sends a signal other than KILL. The caller holds mu.
func (r *Runtime) signal(c *container, sig string) {
	c.sent = append(c.sent, sig)
	select {
	case c.signals <- shell.Signal(sig):
	default: // a process has all it can remember
	}
	r.notify()
}

// killContainer sends KILL to a running container. The caller holds mu.
func (r *Runtime) killContainer(c *container) {
	if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		c.sent = append(c.sent, "KILL")
		r.exited(c, shell.Exit{Code: 137})
	}
}

// exited records the first end of a process. The caller holds mu.
func (r *Runtime) exited(c *container, exit shell.Exit) {
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	reason := "Error"
	switch {
	case exit.OOM:
		reason = "OOMKilled"
	case exit.Code == 0:
		reason = "Completed"
	}
	r.endAs(c, exit.Code, reason)
}

// endAs is the end of a running container. The caller holds mu.
func (r *Runtime) endAs(c *container, code int32, reason string) {
	c.kill()
	c.state = runtimeapi.ContainerState_CONTAINER_EXITED
	c.exitCode, c.reason, c.finished = code, reason, r.now()
	if c.log != nil {
		c.log.close()
	}
	if c.stdin != nil {
		_ = c.stdin.Close() // never fails
	}
	close(c.done)
	r.emit(c.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.sandbox)
	r.notify()
}
