// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// row is a line of the table.
type row struct {
	promise
	measured string
	state    state
}

// state is what became of a promise.
type state string

const (
	met    state = "yes"
	known  state = "no"      // and this is known
	broken state = "NO"      // it was kept until now
	worse  state = "WORSE"   // it exceeds its ratchet
	silent state = "NOT RUN" // the test or its figure is not there
)

// fails reports whether the program ends with 1 for it.
func (s state) fails() bool { return s == broken || s == worse || s == silent }

// judge reads what a test printed.
func (s show) judge(output string, passed bool) []row {
	found := metrics(output)
	var rows []row
	for _, p := range s.promises {
		rows = append(rows, s.judgeOne(p, found, output, passed))
	}
	return rows
}

func (s show) judgeOne(p promise, found map[string]float64, output string, passed bool) row {
	missing := func(test string) bool { return !strings.Contains(output, "--- PASS: "+test+" (") }
	value, measured := found[p.metric]
	switch {
	case len(s.args) == 0:
		return row{p, "nothing", known}
	case !passed:
		return row{p, "failed", broken}
	case p.metric == "" && (len(s.tests) == 0 || slices.ContainsFunc(s.tests, missing)):
		return row{p, "a test is missing", silent}
	case p.metric == "":
		return row{p, "holds", met}
	case !measured:
		return row{p, "nothing", silent}
	}
	r := row{p, strconv.FormatFloat(value, 'g', 4, 64), met}
	switch {
	case p.ratchet > 0 && value > p.ratchet:
		r.state = worse
	case value > p.atMost && p.unmet != "":
		r.state = known
	case value > p.atMost:
		r.state = broken
	}
	return r
}

// metrics are what benchmarks reported, by unit: pairs after the number of runs.
func metrics(output string) map[string]float64 {
	found := map[string]float64{}
	for line := range strings.Lines(output) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		for pair := range slices.Chunk(words[2:], 2) {
			if value, err := strconv.ParseFloat(pair[0], 64); err == nil && len(pair) == 2 {
				found[pair[1]] = value
			}
		}
	}
	return found
}

// table is the rows by what they are about, in Markdown.
func table(rows []row) string {
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.about, b.about) })
	var b strings.Builder
	b.WriteString("| about | promise | bound | measured | met |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		bound, state := "", string(r.state)
		if r.metric != "" {
			bound = strconv.FormatFloat(r.atMost, 'g', -1, 64)
		}
		if r.state == known {
			state += ": " + r.unmet
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.about, r.what, bound, r.measured, state)
	}
	return b.String()
}
