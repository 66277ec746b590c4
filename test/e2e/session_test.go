// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// outcome is how a kubectl ended.
type outcome struct {
	out, err string
	code     int
}

// kubectlCmd is a kubectl about this test's namespace.
func (e *env) kubectlCmd(args ...string) *exec.Cmd {
	e.Helper()
	cmd, err := e.n.cp.KubectlCommand(e.Context(), append([]string{"--namespace=" + e.ns}, args...)...)
	if err != nil {
		e.Fatal(err)
	}
	return cmd
}

// kubectl runs to its end, its outputs apart.
func (e *env) kubectl(in io.Reader, args ...string) outcome {
	e.Helper()
	cmd := e.kubectlCmd(args...)
	var out, errout bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errout
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		e.Fatal(err)
	}
	return outcome{out.String(), errout.String(), cmd.ProcessState.ExitCode()}
}

// talking is a kubectl that is spoken with line by line.
type talking struct {
	*exec.Cmd
	in     io.WriteCloser
	lines  *bufio.Reader
	errout *bytes.Buffer
}

func (e *env) talk(args ...string) *talking {
	e.Helper()
	t := &talking{Cmd: e.kubectlCmd(args...), errout: &bytes.Buffer{}}
	t.Stderr = t.errout
	in, err := t.StdinPipe()
	if err != nil {
		e.Fatal(err)
	}
	out, err := t.StdoutPipe()
	if err != nil {
		e.Fatal(err)
	}
	t.in, t.lines = in, bufio.NewReader(out)
	if err := t.Start(); err != nil {
		e.Fatal(err)
	}
	return t
}

// exchange sends a line and wants it back.
func (t *talking) exchange(line string) error {
	if _, err := io.WriteString(t.in, line+"\n"); err != nil {
		return fmt.Errorf("send %q: %w", line, err)
	}
	got, err := t.lines.ReadString('\n')
	if err != nil || got != line+"\n" {
		return fmt.Errorf("sent %q, got %q, %w", line, got, err)
	}
	return nil
}

// end says that this was all, and waits.
func (t *talking) end() error {
	rest, err := bufio.NewReader(t.lines), t.in.Close()
	left, readErr := io.ReadAll(rest)
	err = errors.Join(err, readErr, t.Wait())
	if err != nil || len(left) > 0 {
		return fmt.Errorf("left %q, stderr %q, %w", left, t.errout, err)
	}
	return nil
}
