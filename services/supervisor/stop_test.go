// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// `sextant up` in the foreground has no --run-dir among its arguments unless the
// operator gave one.
func TestStopFindsWhatWasStarted(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	run := t.TempDir()
	if err := os.WriteFile(supervisorFile(run), pidText(cmd.Process.Pid), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Stop(t.Context(), &Plan{Run: run}); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("it was not stopped")
	}
}

func TestReadPID(t *testing.T) {
	self := string(pidText(os.Getpid()))
	for text, want := range map[string]int{
		self:                               os.Getpid(),
		strconv.Itoa(os.Getpid()) + "\n":   os.Getpid(), // as an earlier version wrote it
		strconv.Itoa(os.Getpid()) + " 1\n": 0,           // somebody else's since
		"1 0\n":                            0,
		"0\n":                              0,
		"":                                 0,
		"x":                                0,
	} {
		file := filepath.Join(t.TempDir(), "pid")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := readPID(file, "-test."); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
