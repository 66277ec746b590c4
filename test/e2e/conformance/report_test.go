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
}

// read takes the tests that were run, by full text, from ginkgo's JSON report.
func read(raw []byte) (map[string]result, error) {
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeType, LeafNodeText string
			State                      string
			Failure                    struct{ Message string }
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
			got[name] = result{state: spec.State, message: spec.Failure.Message}
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
	if _, compared := results[reference]; !compared {
		for name, r := range results[other] {
			if r.state != "passed" && r.state != "skipped" {
				list = append(list, name)
			}
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
			fmt.Fprintf(&b, "%-10s ", cell(a))
		}
		fmt.Fprintln(&b, text)
	}
	line(func(a string) string { return a }, "test")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		line(func(a string) string {
			if r, ran := results[a][name]; ran {
				return r.state
			}
			return "-"
		}, name)
	}
	line(func(a string) string {
		passed := 0
		for _, r := range results[a] {
			if r.state == "passed" {
				passed++
			}
		}
		return fmt.Sprint(passed)
	}, fmt.Sprintf("passed, of %d", len(names)))
	return b.String()
}

func TestReport(t *testing.T) {
	const report = `[{"SpecReports":[
		{"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"a","State":"passed"},
		{"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"b","State":"failed","Failure":{"Message":"why"}},
		{"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"not chosen","State":"skipped"},
		{"LeafNodeType":"SynchronizedBeforeSuite","State":"passed"}]}]`
	got, err := read([]byte(report))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["[sig-node] Pods b"] != (result{"failed", "why"}) {
		t.Fatalf("read %v", got)
	}
	both := map[string]map[string]result{"reference": got, "sextant": {"[sig-node] Pods b": {state: "passed"}}}
	if w := worse(both, "reference", "sextant"); !slices.Equal(w, []string{"[sig-node] Pods a"}) {
		t.Errorf("worse: %q", w)
	}
	if w := worse(map[string]map[string]result{"sextant": got}, "reference", "sextant"); !slices.Equal(w, []string{"[sig-node] Pods b"}) {
		t.Errorf("alone: %q", w)
	}
	want := "reference  sextant    test\npassed     -          [sig-node] Pods a\nfailed     passed     [sig-node] Pods b\n1          1          passed, of 2\n"
	if s := table([]string{"reference", "sextant"}, both); s != want {
		t.Errorf("table\n%s", s)
	}
	if _, err := read([]byte("{")); err == nil {
		t.Error("a report that is cut off is read")
	}
}
