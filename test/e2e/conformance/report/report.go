// SPDX-License-Identifier: Apache-2.0

// Package report reads what ginkgo reports of upstream's tests and compares two agents by it.
package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Result is what became of one test.
type Result struct {
	// State is ginkgo's: "passed", "failed", "panicked", "timedout", "skipped" …
	State   string
	Message string
	// Attempts is how often it was tried until it passed, or not.
	Attempts int
	// Again is how often it was tried once more later, and Passes how often it
	// passed then.
	Again, Passes int
}

// String is the state, and how many attempts it took if more than one; then how
// often it passed of how many times it was tried again.
func (r Result) String() string {
	text := r.State
	if r.Attempts > 1 {
		text += fmt.Sprintf("/%d", r.Attempts)
	}
	if r.Again > 0 {
		text += fmt.Sprintf(" %d:%d", r.Passes, r.Again)
	}
	return text
}

// Read takes the tests that were run, by full text, from ginkgo's JSON report.
func Read(raw []byte) (map[string]Result, error) {
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
	got := map[string]Result{}
	for _, s := range suites {
		for _, spec := range s.SpecReports {
			if spec.LeafNodeType != "It" || spec.State == "skipped" && spec.Failure.Message == "" {
				continue // not chosen; one that skips itself says why
			}
			texts := append(spec.ContainerHierarchyTexts, spec.LeafNodeText)
			name := strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), " ") // as ginkgo's focus is matched
			got[name] = Result{State: spec.State, Message: spec.Failure.Message, Attempts: spec.NumAttempts}
		}
	}
	return got, nil
}

// Worse are the tests that one passes and the other does not. Of those that were
// tried again, the tries since then count.
func Worse(results map[string]map[string]Result, reference, other string) []string {
	var list []string
	for name, r := range results[reference] {
		o, ran := results[other]
		switch {
		case !ran:
		case r.Again > 0 && o[name].Again > 0:
			if o[name].Passes < r.Passes {
				list = append(list, name)
			}
		case r.State == "passed" && o[name].State != "passed":
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// Differing are the tests that some agents passed and others did not; one that
// was not run for an agent, a set-up that failed for instance, was not passed.
func Differing(results map[string]map[string]Result) []string {
	passed := map[string]int{}
	for _, of := range results {
		for name, r := range of {
			if r.State == "passed" {
				passed[name]++
			}
		}
	}
	maps.DeleteFunc(passed, func(_ string, n int) bool { return n == len(results) })
	return slices.Sorted(maps.Keys(passed))
}

// Repeat counts one more try of some tests; of those that skipped themselves there is none.
func Repeat(results, once map[string]Result) {
	for name, r := range once {
		if r.State == "skipped" {
			continue
		}
		was := results[name]
		was.Again++
		if r.State == "passed" {
			was.Passes++
		}
		results[name] = was
	}
}

// Failed are the tests that were run and not passed, or not each time.
func Failed(results map[string]Result) []string {
	var list []string
	for name, r := range results {
		if r.State != "passed" && r.State != "skipped" || r.Passes < r.Again {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// NotAtOnce are the tests that passed, but not at the first attempt.
func NotAtOnce(results map[string]Result) []string {
	var list []string
	for name, r := range results {
		if r.State == "passed" && r.Attempts > 1 {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// Table shows every test with what became of it under each agent, and the sums.
func Table(agents []string, results map[string]map[string]Result) string {
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
		return fmt.Sprint(count(results[a], func(r Result) bool { return r.State == "passed" }))
	}, fmt.Sprintf("passed, of %d", len(names)))
	line(func(a string) string { return fmt.Sprint(len(NotAtOnce(results[a]))) }, "passed, but not at once")
	return b.String()
}

// Skipped says why tests skipped themselves under each agent, and how many did so for the reason.
func Skipped(agents []string, results map[string]map[string]Result) string {
	var b strings.Builder
	for _, agent := range agents {
		why := map[string]int{}
		for _, r := range results[agent] {
			if r.State == "skipped" {
				reason, _, _ := strings.Cut(r.Message, "\n")
				why[reason]++
			}
		}
		for _, reason := range slices.Sorted(maps.Keys(why)) {
			fmt.Fprintf(&b, "%-13s skipped %3d: %s\n", agent, why[reason], reason)
		}
	}
	return b.String()
}

func count(results map[string]Result, which func(Result) bool) int {
	n := 0
	for _, r := range results {
		if which(r) {
			n++
		}
	}
	return n
}
