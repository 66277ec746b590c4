// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
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

// terminal is a pseudoterminal with a kubectl on it.
type terminal struct {
	master *os.File
	cmd    *exec.Cmd
	mu     sync.Mutex
	seen   bytes.Buffer
}

// What a terminal sends for Ctrl-C and Ctrl-D.
const interrupt, endOfInput = "\x03", "\x04"

// openTerminal starts a command whose input and outputs are a terminal.
func openTerminal(cmd *exec.Cmd, rows, columns uint16) (*terminal, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t := &terminal{master: master, cmd: cmd}
	if err := t.start(rows, columns); err != nil {
		return nil, errors.Join(err, master.Close())
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
	return t, nil
}

func (t *terminal) start(rows, columns uint16) error {
	if err := unix.IoctlSetPointerInt(int(t.master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	number, err := unix.IoctlGetInt(int(t.master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return err
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer slave.Close() //nolint:errcheck // kubectl has its own
	if err := t.resize(rows, columns); err != nil {
		return err
	}
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = slave, slave, slave
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return t.cmd.Start()
}

// resize changes the size; the kernel tells kubectl.
func (t *terminal) resize(rows, columns uint16) error {
	return unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
}

func (t *terminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen.String()
}

// typed writes what somebody types.
func (t *terminal) typed(keys string) error {
	_, err := io.WriteString(t.master, keys)
	return err
}

// shows waits until the screen has something; a line, if there is one, is typed
// again and again until then.
func (t *terminal) shows(ctx context.Context, line, want string) error {
	var last time.Time
	return harness.Within(ctx, 2*time.Minute, func(context.Context) error {
		if strings.Contains(t.text(), want) {
			return nil
		}
		if line != "" && time.Since(last) > time.Second {
			last = time.Now()
			if err := t.typed(line + "\n"); err != nil {
				return err
			}
		}
		return fmt.Errorf("waiting for %s: it shows %q", want, t.text())
	})
}

// onTerminal starts a kubectl of this test on a terminal.
func (e *env) onTerminal(rows, columns uint16, args ...string) *terminal {
	e.Helper()
	t, err := openTerminal(e.kubectlCmd(args...), rows, columns)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = t.master.Close() })
	return t
}

// until is shows for where the test cannot go on without.
func (t *terminal) until(e *env, line, want string) {
	e.Helper()
	if err := t.shows(e.Context(), line, want); err != nil {
		e.Fatal(err)
	}
}
