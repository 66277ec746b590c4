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
}

// String is the state, and how many attempts it took if more than one.
func (r result) String() string {
	if r.attempts > 1 {
		return fmt.Sprintf("%s/%d", r.state, r.attempts)
	}
	return r.state
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

// worse are the tests that one passes and the other does not.
func worse(results map[string]map[string]result, reference, other string) []string {
	var list []string
	for name, r := range results[reference] {
		if o, ran := results[other]; ran && r.state == "passed" && o[name].state != "passed" {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
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
			fmt.Fprintf(&b, "%-11s ", cell(a))
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
	line(func(a string) string {
		return fmt.Sprint(count(results[a], func(r result) bool { return r.state == "passed" && r.attempts > 1 }))
	}, "passed, but not at once")
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
	if f := failed(got); !slices.Equal(f, []string{"[sig-node] Pods b"}) {
		t.Errorf("failed: %q", f)
	}
	want := "reference   sextant     test\npassed/2    -           [sig-node] Pods a\nfailed      passed      [sig-node] Pods b\n" +
		"1           1           passed, of 2\n1           0           passed, but not at once\n"
	if s := table([]string{"reference", "sextant"}, both); s != want {
		t.Errorf("table\n%s", s)
	}
	if _, err := read([]byte("{")); err == nil {
		t.Error("a report that is cut off is read")
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
