// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	s := bench("", "./x", "X",
		promise{about: "a", what: "fast", metric: "p99-ms", atMost: 5},
		promise{about: "a", what: "not yet", metric: "p99-ms", atMost: 5, ratchet: 20, unmet: "why"},
		promise{about: "b", what: "few", metric: "GETs"},
		promise{about: "c", what: "by far", metric: "p99-ms", atMost: 500, ratchet: 7})
	const out = "goos: linux\nBenchmarkX-2   \t 1\t99 ns/op\t 0 GETs\t 7.5 p99-ms\nPASS\n"
	want := "| about | promise | bound | measured | met |\n|---|---|---|---|---|\n" +
		"| a | fast | 5 | 7.5 | NO |\n| a | not yet | 5 | 7.5 | no: why |\n| b | few | 0 | 0 | yes |\n| c | by far | 500 | 7.5 | WORSE |\n"
	if got := table(s.judge(out, true)); got != want {
		t.Errorf("got\n%s", got)
	}
	for name, rows := range map[string][]row{"failed": s.judge(out, false), "nothing": s.judge("PASS\n", true)} {
		for _, r := range rows {
			if !r.state.fails() {
				t.Errorf("%s: %s is %s", name, r.what, r.state)
			}
		}
	}
}

// TestJudgeTests: a test that was renamed, or a subtest that did not run, keeps nothing.
func TestJudgeTests(t *testing.T) {
	s := test("", "./x", "TestA TestB/kind/sub", promise{what: "works"})
	if s.args[2] != "-run=^(TestA|TestB/kind/sub)$" {
		t.Errorf("called with %q", s.args)
	}
	const all = "--- PASS: TestA (0.00s)\n--- PASS: TestB (1.00s)\n    --- PASS: TestB/kind/sub (1.00s)\n"
	for output, want := range map[string]state{
		all: met, "ok  x 0.1s [no tests to run]\n": silent, "--- PASS: TestA (0.00s)\n--- PASS: TestB (1.00s)\n": silent,
		strings.Replace(all, "PASS: TestA ", "SKIP: TestA ", 1): silent, strings.Replace(all, "TestA ", "TestAll ", 1): silent,
	} {
		if got := s.judge(output, true)[0].state; got != want {
			t.Errorf("%q: %s, want %s", output, got, want)
		}
	}
	if got := s.judge(all, false)[0].state; got != broken {
		t.Errorf("failed: %s", got)
	}
	if got := (show{promises: []promise{{what: "later", unmet: "no test"}}}).judge("", true)[0].state; got != known {
		t.Errorf("without a test: %s", got)
	}
}

// TestShows: the tests and benchmarks that are named are there, and a promise without
// one says why.
func TestShows(t *testing.T) {
	name := regexp.MustCompile(`\w+`)
	for _, s := range shows(true) {
		if len(s.args) == 0 {
			for _, p := range s.promises {
				if p.unmet == "" {
					t.Errorf("%s: neither shown nor known as unmet", p.what)
				}
			}
			continue
		}
		var source strings.Builder
		files, err := filepath.Glob(filepath.Join("../..", s.dir, s.args[0], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(text)
		}
		functions := s.tests
		for _, arg := range s.args {
			if benchmark, ok := strings.CutPrefix(arg, "-bench=^"); ok {
				functions = append(functions, strings.TrimSuffix(benchmark, "$"))
			}
		}
		if len(functions) == 0 {
			t.Errorf("%s names no test", s)
		}
		for _, f := range functions {
			if f = name.FindString(f); !strings.Contains(source.String(), "func "+f+"(") {
				t.Errorf("%s: there is no %s", s, f)
			}
		}
	}
}
