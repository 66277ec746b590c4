// SPDX-License-Identifier: Apache-2.0

// Package seen is what runs of tests saw of a machine: a line of JSON for each package of
// tests that passed, in the file that SEXTANT_SEEN names. The command compat prints the page
// of compatibility from it.
package seen

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// File is the variable of the environment that names the file; empty for none.
const File = "SEXTANT_SEEN"

// Run is a run of one package of tests that passed.
type Run struct {
	// Package is below test, as in "e2e/kubeadm".
	Package string    `json:"package"`
	Commit  string    `json:"commit"`
	Time    time.Time `json:"time"`
	// Tests are the flags that chose some of them; empty for all.
	Tests  string `json:"tests,omitempty"`
	System string `json:"system"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	Cgroup string `json:"cgroup"`
	// With are the parts that were run with, such as "containerd v2.4.2".
	With []string `json:"with"`
}

// Notes collects the parts that tests run with. Safe for concurrent use.
type Notes struct {
	mu   sync.Mutex
	with []string
}

// Add notes a part.
func (n *Notes) Add(part string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.with, part) {
		n.with = append(n.with, part)
	}
}

// Write appends a run to the file that the environment names.
func (n *Notes) Write(name, commit, tests string) error {
	path := os.Getenv(File)
	if path == "" {
		return nil
	}
	n.mu.Lock()
	with := slices.Sorted(slices.Values(n.with))
	n.mu.Unlock()
	run := Run{Package: name, Commit: commit, Time: time.Now().UTC().Truncate(time.Second), Tests: tests, Arch: runtime.GOARCH, With: with}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return err
	}
	run.Kernel = unix.ByteSliceToString(uname.Release[:])
	run.System, run.Cgroup = system(), "v1"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		run.Cgroup = "v2"
	}
	line, err := json.Marshal(run)
	if err != nil {
		return err
	}
	// One write, so that two packages at a time do not mix their lines.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// Commit is that of a source, with "-dirty" if tracked files were changed; "unknown" for a
// source without its repository.
func Commit(source string) string {
	git := exec.Command("git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty")
	git.Dir = source
	out, err := git.Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// system is the distribution's name.
func system() string {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"`)
		}
	}
	return "unknown"
}

// Read reads runs, one a line.
func Read(data []byte) ([]Run, error) {
	var all []Run
	scan := bufio.NewScanner(bytes.NewReader(data))
	for scan.Scan() {
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		var run Run
		if err := json.Unmarshal(scan.Bytes(), &run); err != nil {
			return nil, fmt.Errorf("%s: %w", scan.Text(), err)
		}
		all = append(all, run)
	}
	return all, scan.Err()
}
