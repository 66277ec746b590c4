package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/test/e2e/harness"
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

// terminal is a pseudoterminal with a kubectl on it.
type terminal struct {
	master *os.File
	cmd    *exec.Cmd
	mu     sync.Mutex
	seen   bytes.Buffer
}

// onTerminal starts a kubectl whose input and output are a terminal.
func (e *env) onTerminal(rows, columns uint16, args ...string) *terminal {
	e.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		e.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		e.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		e.Fatal(err)
	}
	defer slave.Close() //nolint:errcheck // kubectl has its own
	t := &terminal{master: master, cmd: e.kubectlCmd(args...)}
	t.resize(e, rows, columns)
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = slave, slave, slave
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := t.cmd.Start(); err != nil {
		e.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			t.mu.Lock()
			t.seen.Write(buffer[:n])
			t.mu.Unlock()
			if err != nil {
				return // its other end is gone
			}
		}
	}()
	return t
}

// resize changes the size; the kernel tells kubectl.
func (t *terminal) resize(e *env, rows, columns uint16) {
	e.Helper()
	if err := unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		e.Fatal(err)
	}
}

func (t *terminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen.String()
}

// until types a line again and again until the screen shows something.
func (t *terminal) until(e *env, line, want string) {
	e.Helper()
	var last time.Time
	harness.Eventually(e, 30*time.Second, "the terminal to show "+want, func(context.Context) error {
		if strings.Contains(t.text(), want) {
			return nil
		}
		if time.Since(last) > time.Second {
			last = time.Now()
			if _, err := io.WriteString(t.master, line+"\n"); err != nil {
				return err
			}
		}
		return fmt.Errorf("it shows %q", t.text())
	})
}
