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
	met      bool
}

// judge reads what a test printed.
func (s show) judge(output string, passed bool) []row {
	found := metrics(output)
	var rows []row
	for _, p := range s.promises {
		r := row{promise: p, measured: "holds", met: passed && ran(output)}
		if !r.met {
			r.measured = "failed"
		} else if p.metric != "" {
			value, ok := found[p.metric]
			r.met = ok && value <= p.atMost
			r.measured = strconv.FormatFloat(value, 'g', 4, 64)
			if !ok {
				r.measured = "nothing"
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// ran tells whether there was a test of that name at all.
func ran(output string) bool {
	return !strings.Contains(output, "[no tests to run]") && !strings.Contains(output, "no tests to run\n")
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
		bound, met := "", "no"
		if r.metric != "" {
			bound = strconv.FormatFloat(r.atMost, 'g', -1, 64)
		}
		if r.met {
			met = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.about, r.what, bound, r.measured, met)
	}
	return b.String()
}
