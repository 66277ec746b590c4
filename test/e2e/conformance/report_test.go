// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// result is what became of one test.
type result struct {
	// state is ginkgo's: "passed", "failed", "panicked", "timedout", "skipped" …
	state   string
	message string
	// attempts is how often it was tried until it passed, or not.
	attempts int
	// again is how often it was tried once more later, and passes how often it
	// passed then.
	again, passes int
}

// String is the state, and how many attempts it took if more than one; then how
// often it passed of how many times it was tried again.
func (r result) String() string {
	text := r.state
	if r.attempts > 1 {
		text += fmt.Sprintf("/%d", r.attempts)
	}
	if r.again > 0 {
		text += fmt.Sprintf(" %d:%d", r.passes, r.again)
	}
	return text
}

// read takes the tests that were run, by full text, from ginkgo's JSON report.
func read(raw []byte) (map[string]result, error) {
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeType, LeafNodeText string
			State                      string
			Failure                    struct{ Message string }
			NumAttempts                int
		}
	}
	if err := json.Unmarshal(raw, &suites); err != nil {
		return nil, fmt.Errorf("report of ginkgo: %w", err)
	}
	got := map[string]result{}
	for _, s := range suites {
		for _, spec := range s.SpecReports {
			if spec.LeafNodeType != "It" || spec.State == "skipped" && spec.Failure.Message == "" {
				continue // not chosen; one that skips itself says why
			}
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			got[name] = result{state: spec.State, message: spec.Failure.Message, attempts: spec.NumAttempts}
		}
	}
	return got, nil
}

// worse are the tests that one passes and the other does not. Of those that were
// tried again, the tries since then count.
func worse(results map[string]map[string]result, reference, other string) []string {
	var list []string
	for name, r := range results[reference] {
		o, ran := results[other]
		switch {
		case !ran:
		case r.again > 0 && o[name].again > 0:
			if o[name].passes < r.passes {
				list = append(list, name)
			}
		case r.state == "passed" && o[name].state != "passed":
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// differing are the tests that some agents passed and others did not; one that
// was not run for an agent, a set-up that failed for instance, was not passed.
func differing(results map[string]map[string]result) []string {
	passed := map[string]int{}
	for _, of := range results {
		for name, r := range of {
			if r.state == "passed" {
				passed[name]++
			}
		}
	}
	maps.DeleteFunc(passed, func(_ string, n int) bool { return n == len(results) })
	return slices.Sorted(maps.Keys(passed))
}

// repeated counts one more try of some tests.
func repeated(results, once map[string]result) {
	for name, r := range once {
		was := results[name]
		was.again++
		if r.state == "passed" {
			was.passes++
		}
		results[name] = was
	}
}

// failed are the tests that were run and not passed.
func failed(results map[string]result) []string {
	var list []string
	for name, r := range results {
		if r.state != "passed" && r.state != "skipped" {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// notAtOnce are the tests that passed, but not at the first attempt.
func notAtOnce(results map[string]result) []string {
	var list []string
	for name, r := range results {
		if r.state == "passed" && r.attempts > 1 {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// table shows every test with what became of it under each agent, and the sums.
func table(agents []string, results map[string]map[string]result) string {
	names := map[string]bool{}
	for _, r := range results {
		for name := range r {
			names[name] = true
		}
	}
	var b strings.Builder
	line := func(cell func(agent string) string, text string) {
		for _, a := range agents {
			fmt.Fprintf(&b, "%-13s ", cell(a))
		}
		fmt.Fprintln(&b, text)
	}
	line(func(a string) string { return a }, "test")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		line(func(a string) string {
			if r, ran := results[a][name]; ran {
				return r.String()
			}
			return "-"
		}, name)
	}
	line(func(a string) string {
		return fmt.Sprint(count(results[a], func(r result) bool { return r.state == "passed" }))
	}, fmt.Sprintf("passed, of %d", len(names)))
	line(func(a string) string { return fmt.Sprint(len(notAtOnce(results[a]))) }, "passed, but not at once")
	return b.String()
}

func count(results map[string]result, which func(result) bool) int {
	n := 0
	for _, r := range results {
		if which(r) {
			n++
		}
	}
	return n
}

func TestReport(t *testing.T) {
	const report = `[{"SpecReports":[
		{"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"a","State":"passed","NumAttempts":2},
		{"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"b","State":"failed","Failure":{"Message":"why"}},
		{"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"not chosen","State":"skipped"},
		{"LeafNodeType":"SynchronizedBeforeSuite","State":"passed"}]}]`
	got, err := read([]byte(report))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["[sig-node] Pods b"] != (result{state: "failed", message: "why"}) {
		t.Fatalf("read %v", got)
	}
	both := map[string]map[string]result{"reference": got, "sextant": {"[sig-node] Pods b": {state: "passed"}}}
	if w := worse(both, "reference", "sextant"); !slices.Equal(w, []string{"[sig-node] Pods a"}) {
		t.Errorf("worse: %q", w)
	}
	if w := worse(map[string]map[string]result{"sextant": got}, "reference", "sextant"); len(w) > 0 {
		t.Errorf("worse than nobody: %q", w)
	}
	if n := notAtOnce(got); !slices.Equal(n, []string{"[sig-node] Pods a"}) {
		t.Errorf("not at once: %q", n)
	}
	if f := failed(got); !slices.Equal(f, []string{"[sig-node] Pods b"}) {
		t.Errorf("failed: %q", f)
	}
	want := "reference     sextant       test\npassed/2      -             [sig-node] Pods a\nfailed        passed        [sig-node] Pods b\n" +
		"1             1             passed, of 2\n1             0             passed, but not at once\n"
	if s := table([]string{"reference", "sextant"}, both); s != want {
		t.Errorf("table\n%s", s)
	}
	if _, err := read([]byte("{")); err == nil {
		t.Error("a report that is cut off is read")
	}
}

// TestRepeats: what one agent alone passes is tried again, and those tries count.
func TestRepeats(t *testing.T) {
	passed, failed := result{state: "passed"}, result{state: "failed"}
	both := map[string]map[string]result{
		"reference": {"equal": passed, "never": passed, "flake": passed, "flakes more": passed, "better": failed, "neither": failed},
		"sextant":   {"equal": passed, "never": failed, "flake": failed, "flakes more": failed, "better": passed, "neither": failed},
	}
	again := differing(both)
	if want := []string{"better", "flake", "flakes more", "never"}; !slices.Equal(again, want) {
		t.Fatalf("to be tried again: %q, want %q", again, want)
	}
	for n := range 3 {
		for agent, of := range both {
			once := map[string]result{"better": passed, "flake": passed, "flakes more": passed, "never": passed}
			if agent == "sextant" {
				once["never"] = failed
				if n == 1 {
					once["flakes more"] = failed
				}
			}
			repeated(of, once)
		}
	}
	if w := worse(both, "reference", "sextant"); !slices.Equal(w, []string{"flakes more", "never"}) {
		t.Errorf("worse: %q", w)
	}
	if s := both["sextant"]["flakes more"].String(); s != "failed 2:3" {
		t.Errorf("in the table: %s", s)
	}
}

func TestChosen(t *testing.T) {
	list := chosen()
	if len(list) < 10 || len(slices.Compact(slices.Sorted(slices.Values(list)))) != len(list) {
		t.Errorf("fast.txt is too short or names a test twice: %q", list)
	}
	for _, spec := range list {
		if !strings.Contains(spec, "[NodeConformance]") {
			t.Errorf("not a test of node conformance: %s", spec)
		}
	}
}
