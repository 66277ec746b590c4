// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Artifacts is the folder for what a test leaves behind: that of $SEXTANT_ARTIFACTS,
// which keeps it of every test, or bin/failed of the repository, for a test that failed.
// It is empty for a test that passed when the variable is not set.
func Artifacts(t testing.TB) (string, error) {
	to := os.Getenv("SEXTANT_ARTIFACTS")
	if to == "" {
		if !t.Failed() {
			return "", nil
		}
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		to = filepath.Join(root, "bin", "failed")
	}
	return filepath.Join(to, strings.ReplaceAll(t.Name(), "/", "_")), nil
}

// keep copies log files into a folder of the test's artifacts. Of a test that failed
// it prints the last warnings and errors of each: more would hide what the test says.
func keep(t testing.TB, name string, logs ...string) {
	to, err := Artifacts(t)
	if err == nil && to != "" {
		to = filepath.Join(to, name)
		err = copyFiles(to, logs)
	}
	if err != nil {
		t.Logf("keep the logs of %s: %v", name, err)
	}
	if !t.Failed() {
		return
	}
	var b strings.Builder
	for _, log := range logs {
		if lines := trouble(log, 4); len(lines) > 0 {
			fmt.Fprintf(&b, "%s:\n  %s\n", filepath.Base(log), strings.Join(lines, "\n  "))
		}
	}
	t.Logf("the logs of %s are in %s; their last warnings:\n%s", name, to, b.String())
}

func copyFiles(to string, files []string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(f)), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// serious is how slog, logrus and klog mark a warning or worse.
var serious = regexp.MustCompile(`"level":"(WARN|ERROR)"|level=(warning|error|fatal|panic)|^[WEF]\d{4} |^panic:|^fatal error:`)

// trouble returns the last n lines of a log that are warnings or worse, each of 300
// bytes at most, or why the log cannot be read.
func trouble(path string, n int) []string {
	found := matching(path, serious, 300)
	return found[max(0, len(found)-n):]
}

// matching returns the lines of a file that match, each of so many bytes at most, or why
// the file cannot be read.
func matching(path string, what *regexp.Regexp, bytes int) (found []string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimRight(line, "\n"); what.MatchString(line) {
			found = append(found, line[:min(len(line), bytes)])
		}
	}
	return found
}
