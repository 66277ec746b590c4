// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// buildRule is the only script that builds the program.
const buildRule = "deploy/build.sh"

// buildTags are what the program is built with.
func buildTags(t *testing.T) string {
	t.Helper()
	tags := regexp.MustCompile(`-tags=(\S+)`).FindStringSubmatch(read(t, buildRule))
	if tags == nil {
		t.Fatalf("%s builds without tags", buildRule)
	}
	return tags[1]
}

var (
	// programName is the program's main package as an argument of the go command.
	programName = regexp.MustCompile(`(?:\.|github\.com/sextant-node/sextant)/cmd/sextant(?:["'\s]|$)`)
	// goBuild is a call of the go command that makes a program, in a script or in Go.
	goBuild = regexp.MustCompile(`\bgo (?:build|install)\s+[-.\w/$"]|"go",\s*"(?:build|install)"`)
)

// TestOneBuild: what is tested and measured is what ships, built with the same flags.
// The main package has its name in one script only, and the other builds are known.
func TestOneBuild(t *testing.T) {
	otherPrograms := map[string]string{
		"Makefile":                             "the program that runs the node of make up",
		"test/images/images.go":                "programs of the tests' images",
		"test/machine/bench_test.go":           "the agent inside the emulated machine",
		"test/env/install.sh":                  "the real parts",
		"test/e2e/devices/plugins_test.go":     "a device plugin and a driver of Kubernetes",
		"test/e2e/conformance/kubelet_test.go": "a device plugin of Kubernetes",
		"test/e2e/credentialprovider_test.go":  "a credential provider of AWS",
	}
	rule := read(t, buildRule)
	if !programName.MatchString(rule) || !goBuild.MatchString(rule) {
		t.Fatalf("%s builds nothing that this rule sees", buildRule)
	}
	seen := map[string]bool{}
	for _, name := range files(t) {
		if name == buildRule || within(name, "test/rules", "docs/decisions") {
			continue
		}
		text := read(t, name)
		for line := range strings.Lines(text) {
			if programName.MatchString(line) && !strings.Contains(line, "go test ") {
				t.Errorf("%s names the main package: what builds the program calls %s: %s", name, buildRule, line)
			}
		}
		if filepath.Ext(name) != ".md" && goBuild.MatchString(text) {
			seen[name] = true
			if otherPrograms[name] == "" {
				t.Errorf("%s calls go build: for the program call %s, other programs are listed here", name, buildRule)
			}
		}
	}
	for name := range otherPrograms {
		if !seen[name] {
			t.Errorf("%s builds nothing any more: take it out of the list", name)
		}
	}
	for _, user := range []string{"Makefile", "deploy/package/build.sh", "test/e2e/harness/lab.go"} {
		text := read(t, user)
		if !strings.Contains(text, buildRule) && !strings.Contains(text, `"deploy", "build.sh"`) {
			t.Errorf("%s does not call %s", user, buildRule)
		}
	}
}

// files are the paths of all text files of the repository, from its root.
func files(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || name == "bin" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.Type().IsRegular() && !slices.Contains([]string{".binpb", ".sum", ".svg", ".tgz"}, filepath.Ext(name)):
			found = append(found, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 500 {
		t.Fatalf("only %d files", len(found))
	}
	return found
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReruns: one script lets failed tests run once more and writes down which; the race
// detector's tests and those of kills do not use it, and its list of tests that may not
// fail even once is not empty (test/reruns checks that they exist).
func TestReruns(t *testing.T) {
	const script = "test/env/tests.sh"
	for _, name := range files(t) {
		if text := read(t, name); name != script && !within(name, "test/rules") && strings.Contains(text, "--rerun-fails=") {
			t.Errorf("%s runs failed tests again: only %s does, which writes them to the ledger", name, script)
		}
	}
	if text := read(t, script); !strings.Contains(text, "--rerun-fails=1 ") || !strings.Contains(text, "test/reruns ") {
		t.Errorf("%s does not run tests again, or does not judge them", script)
	}
	checked := 0
	for line := range strings.Lines(read(t, "Makefile")) {
		for _, never := range []string{" -race ", "./killmatrix", "./volumekills", "./hostile", "TestSkew$$", "TestTakeOver$$"} {
			if !strings.Contains(line, never) || !strings.HasPrefix(line, "\t@") || strings.Contains(line, "./killmatrix/judge") {
				continue
			}
			checked++
			if strings.Contains(line, "tests.sh") {
				t.Errorf("Makefile runs tests again that may not fail even once: %s", line)
			}
		}
	}
	if checked < 6 {
		t.Errorf("only %d lines of the Makefile are checked", checked)
	}
}
