// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// TestHangUp: a terminal that goes away, as a broken SSH session's does, ends the program in
// order.
func TestHangUp(t *testing.T) {
	// What a process handles is not ignored by those that it starts, also below nohup.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "run", "bus", "--run-dir="+dir+"/run", "--state-dir="+dir+"/state")
	cmd.Env = append(os.Environ(), program+"=1")
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("it says nothing")
	}
	said := lines.Text()
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		said += "\n" + lines.Text()
	}
	err = cmd.Wait()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		t.Errorf("it was ended, and did not end: %v; it said:\n%s", err, said)
	}
}

// TestClosedPipe: a verb that changes the node comes to its end though nobody reads what it
// says, as when Ctrl-C has ended tee before it.
func TestClosedPipe(t *testing.T) {
	run := t.TempDir()
	if err := os.WriteFile(filepath.Join(run, "node.json"), []byte(`{"run":"`+run+`","state":"`+run+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "down", "--run-dir="+run)
	cmd.Env = append(os.Environ(), program+"=1")
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		t.Errorf("it did not come to its end: %v", err)
	}
}
