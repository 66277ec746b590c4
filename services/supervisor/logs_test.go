// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sextant-node/sextant/test/disk"
)

// TestLogsAreBounded: however much a service writes, three files of about the limit are
// all there is, with the newest lines; what else is in the folder is left alone.
func TestLogsAreBounded(t *testing.T) {
	const most = 1000
	dir := t.TempDir()
	path := filepath.Join(dir, "nodeapi.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640) // as a service has it
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	foreign := strings.Repeat("x", 2*most)
	others := []string{"auth.log", "auth.log.1", "notes"} // as in /var/log
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(foreign), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	line := strings.Repeat("y", 99) + "\n"
	for i := range 1000 {
		if _, err := log.WriteString(line); err != nil {
			t.Fatal(err)
		}
		if i == 999 {
			break
		}
		if err := rotateLogs(dir, most); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{"nodeapi.log": 1000 % 11, "nodeapi.log.1": 11, "nodeapi.log.2": 11}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(want)+len(others) {
		t.Fatalf("%v, %v", entries, err)
	}
	for name, lines := range want {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(data) != strings.Repeat(line, lines) {
			t.Errorf("%s has %d bytes, %v; want %d lines", name, len(data), err, lines)
		}
	}
	for _, name := range others {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != foreign {
			t.Errorf("%s, of another program: %d bytes, %v", name, len(data), err)
		}
	}
}

// TestLogsOnAFullDisk: the log is emptied all the same, which makes room.
func TestLogsOnAFullDisk(t *testing.T) {
	d := disk.Small(t, "64k")
	path := filepath.Join(d.Dir, "config.log")
	if err := os.WriteFile(path, make([]byte, 20<<10), 0o640); err != nil {
		t.Fatal(err)
	}
	d.Fill()
	if err := rotateLogs(d.Dir, 10<<10); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Errorf("the log: %v, %v", info, err)
	}
	if _, err := os.Stat(path + ".1"); !os.IsNotExist(err) {
		t.Errorf("half a log is kept: %v", err)
	}
}
