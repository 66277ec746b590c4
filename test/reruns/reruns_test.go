// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root = "../.."
	e2e  = "github.com/sextant-node/sextant/test/e2e"
)

// twoRuns: a subtest and a TestMain fail at first; one test fails twice.
const twoRuns = `
{"Action":"start","Package":"` + e2e + `"}
{"Action":"run","Package":"` + e2e + `","Test":"TestNodes"}
{"Action":"fail","Package":"` + e2e + `","Test":"TestNodes/kill/v2-bus"}
{"Action":"fail","Package":"` + e2e + `","Test":"TestNodes/kill"}
{"Action":"fail","Package":"` + e2e + `","Test":"TestNodes"}
{"Action":"fail","Package":"` + e2e + `","Test":"TestStreams"}
{"Action":"pass","Package":"` + e2e + `","Test":"TestCompare"}
{"Action":"fail","Package":"` + e2e + `"}
{"Action":"start","Package":"` + e2e + `/kubeadm"}
{"Action":"pass","Package":"` + e2e + `/kubeadm","Test":"TestKubeadm"}
{"Action":"fail","Package":"` + e2e + `/kubeadm"}
{"Action":"start","Package":"` + e2e + `"}
{"Action":"pass","Package":"` + e2e + `","Test":"TestNodes/kill/v2-bus"}
{"Action":"pass","Package":"` + e2e + `","Test":"TestNodes/kill"}
{"Action":"pass","Package":"` + e2e + `","Test":"TestNodes"}
{"Action":"pass","Package":"` + e2e + `"}
{"Action":"start","Package":"` + e2e + `"}
{"Action":"fail","Package":"` + e2e + `","Test":"TestStreams"}
{"Action":"fail","Package":"` + e2e + `"}
{"Action":"start","Package":"` + e2e + `/kubeadm"}
{"Action":"pass","Package":"` + e2e + `/kubeadm"}
`

func TestPassedLater(t *testing.T) {
	again, err := passedLater(strings.NewReader(strings.TrimSpace(twoRuns)))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{e2e + " TestNodes/kill/v2-bus", e2e + "/kubeadm TestMain"}
	if !slices.Equal(again, want) {
		t.Errorf("passed later: %q, want %q", again, want)
	}
	if _, err := passedLater(strings.NewReader("no event")); err == nil {
		t.Error("a file that is no list of events is read")
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	events, never, ledger := filepath.Join(dir, "events"), filepath.Join(dir, "never"), filepath.Join(dir, "bin", "ledger")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(events, strings.TrimSpace(twoRuns))
	write(never, "# none of these\ntest/e2e TestSkew\n")
	if err := run(events, never, ledger); err != nil {
		t.Error(err)
	}
	write(never, "test/e2e TestNodes/kill\n")
	if err := run(events, never, ledger); err == nil || !strings.Contains(err.Error(), "TestNodes/kill/v2-bus") || strings.Contains(err.Error(), "kubeadm") {
		t.Errorf("a kill that failed once: %v", err)
	}
	write(never, "TestSkew\n")
	if err := run(events, never, ledger); err == nil {
		t.Error("a line without a package is accepted")
	}
	lines, err := os.ReadFile(ledger)
	if err != nil || strings.Count(string(lines), "\n") != 4 {
		t.Errorf("ledger: %v\n%s", err, lines)
	}
}

// TestNever: the real list names tests that exist, and catches them.
func TestNever(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "test/env/never.txt"))
	if err != nil {
		t.Fatal(err)
	}
	subjects, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		e2e + " TestMain", e2e + "/kubeadm TestMain", e2e + " TestNodes/kill/v1-nobus", e2e + " TestNodes/behaviour/v2-bus/strangers",
		e2e + " TestSkew", e2e + "/volumekills TestVolumeKills",
	} {
		if len(forbidden([]string{name}, subjects)) == 0 {
			t.Errorf("%s may fail", name)
		}
	}
	for _, name := range []string{e2e + " TestNodes/behaviour/v2-bus/readiness", e2e + " TestCompare/pods", e2e + " TestSkewed"} {
		if len(forbidden([]string{name}, subjects)) > 0 {
			t.Errorf("%s may not fail", name)
		}
	}
	words := regexp.MustCompile(`\w+`)
	for line := range strings.Lines(string(text)) {
		pkg, tests, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(line, "#") || tests == testMain || tests == "" {
			continue
		}
		var source strings.Builder
		files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no tests, %v", pkg, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(b)
		}
		top, subtests, _ := strings.Cut(tests, "/")
		for _, name := range words.FindAllString(top, -1) {
			if !strings.Contains(source.String(), "func "+name+"(") {
				t.Errorf("%s has no test %s", pkg, name)
			}
		}
		for _, name := range words.FindAllString(subtests, -1) {
			if !strings.Contains(source.String(), `"`+strings.ReplaceAll(name, "_", " ")+`"`) {
				t.Errorf("%s has no subtest %q", pkg, name)
			}
		}
	}
}
