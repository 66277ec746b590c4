// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"testing"
)

func TestReport(t *testing.T) {
	const report = `[{"SpecReports":[
		{"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"a","State":"passed","NumAttempts":2},
		{"ContainerHierarchyTexts":["[sig-node] Pods",""],"LeafNodeType":"It","LeafNodeText":"b","State":"failed","Failure":{"Message":"why"}},
		{"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"not chosen","State":"skipped"},
		{"LeafNodeType":"SynchronizedBeforeSuite","State":"passed"}]}]`
	got, err := Read([]byte(report))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["[sig-node] Pods b"] != (Result{State: "failed", Message: "why"}) {
		t.Fatalf("read %v", got)
	}
	both := map[string]map[string]Result{"reference": got, "sextant": {"[sig-node] Pods b": {State: "passed"}}}
	if w := Worse(both, "reference", "sextant"); !slices.Equal(w, []string{"[sig-node] Pods a"}) {
		t.Errorf("worse: %q", w)
	}
	if w := Worse(map[string]map[string]Result{"sextant": got}, "reference", "sextant"); len(w) > 0 {
		t.Errorf("worse than nobody: %q", w)
	}
	if n := NotAtOnce(got); !slices.Equal(n, []string{"[sig-node] Pods a"}) {
		t.Errorf("not at once: %q", n)
	}
	if f := Failed(got); !slices.Equal(f, []string{"[sig-node] Pods b"}) {
		t.Errorf("failed: %q", f)
	}
	want := "reference     sextant       test\npassed/2      -             [sig-node] Pods a\nfailed        passed        [sig-node] Pods b\n" +
		"1             1             passed, of 2\n1             0             passed, but not at once\n"
	if s := Table([]string{"reference", "sextant"}, both); s != want {
		t.Errorf("table\n%s", s)
	}
	got["[sig-node] Pods c"] = Result{State: "skipped", Message: "no SMT\nhere"}
	if s := Skipped([]string{"reference", "sextant"}, both); s != "reference     skipped   1: no SMT\n" {
		t.Errorf("skipped: %q", s)
	}
	if _, err := Read([]byte("{")); err == nil {
		t.Error("a report that is cut off is read")
	}
}

// TestRepeats: what one agent alone passes is tried again, and those tries count.
func TestRepeats(t *testing.T) {
	passed, failed := Result{State: "passed"}, Result{State: "failed"}
	both := map[string]map[string]Result{
		"reference": {"equal": passed, "never": passed, "flake": passed, "flakes more": passed, "better": failed, "neither": failed},
		"sextant":   {"equal": passed, "never": failed, "flake": failed, "flakes more": failed, "better": passed, "neither": failed},
	}
	again := Differing(both)
	if want := []string{"better", "flake", "flakes more", "never"}; !slices.Equal(again, want) {
		t.Fatalf("to be tried again: %q, want %q", again, want)
	}
	for n := range 3 {
		for agent, of := range both {
			once := map[string]Result{"better": passed, "flake": passed, "flakes more": passed, "never": passed}
			if agent == "sextant" {
				once["never"] = failed
				if n == 1 {
					once["flakes more"] = failed
				}
			}
			Repeat(of, once)
		}
	}
	if w := Worse(both, "reference", "sextant"); !slices.Equal(w, []string{"flakes more", "never"}) {
		t.Errorf("worse: %q", w)
	}
	if s := both["sextant"]["flakes more"].String(); s != "failed 2:3" {
		t.Errorf("in the table: %s", s)
	}
	// of one agent: passed at first counts for nothing if it failed later, skipped is no try
	one := map[string]Result{"always": passed, "once": passed, "skips": {State: "skipped"}}
	Repeat(one, map[string]Result{"always": passed, "once": failed, "skips": {State: "skipped"}})
	if f := Failed(one); !slices.Equal(f, []string{"once"}) {
		t.Errorf("failed: %q", f)
	}
	if s := one["skips"].String(); s != "skipped" {
		t.Errorf("in the table: %s", s)
	}
}
