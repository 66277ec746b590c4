// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Table shows a run: every row with ratios and the number to beat, then each
// process, each kill, the API requests, and the latency budget.
func (r *Run) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s pods at once, %d one at a time, in each of %d rounds; idle for %s\n", r.Title(), sizes(r.Pods), r.Single, r.Rounds, r.Idle)
	b.WriteString("floor: bare CRI calls with the least they need; same: with the requests that Sextant makes; spread: least to most of Sextant's\n\n")
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	line := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }
	line("what", "floor", "same", "kubelet", "Sextant", "spread", "/ kubelet", "/ floor", "to reach", "")
	for _, row := range Rows(r.Pods) {
		v, measured := r.Value(Sextant, row)
		verdict := ""
		if limit, ok := r.Limit(row); ok && measured {
			verdict = map[bool]string{true: "met", false: "missed"}[v <= limit]
		}
		line(row.Label, r.cell(Floor, row), r.cell(Same, row), r.cell(Reference, row), r.cell(Sextant, row), r.spread(row), r.ratio(row, Reference), r.ratio(row, Floor), r.target(row), verdict)
	}
	_ = w.Flush() // into memory
	for row := range strings.Lines(table.String()) {
		fmt.Fprintln(&b, strings.TrimRight(row, " \n"))
	}
	r.parts(&b, "CPU of each process, no pods, in %", PartOf(EmptyAgent, ""), Series.Mean)
	for _, n := range r.Pods {
		r.parts(&b, fmt.Sprintf("CPU of each process while %d pods start, in s", n), PartOf(Of(UpCPU, n), ""), quantile(.5))
		r.parts(&b, fmt.Sprintf("CPU of each process while %d pods end, in s", n), PartOf(Of(DownCPU, n), ""), quantile(.5))
		r.parts(&b, fmt.Sprintf("CPU of each process, %d pods idle, in %%", n), PartOf(Of(IdleAgent, n), ""), Series.Mean)
		r.parts(&b, fmt.Sprintf("memory with %d pods, PSS in MiB", n), PartOf(Of(Memory, n), ""), Series.Mean)
	}
	r.parts(&b, "kill -9 to Ready of a new pod, p50 in s", PartOf(Recovery, ""), quantile(.5))
	r.requests(&b)
	if len(r.Budget) > 0 {
		fmt.Fprintf(&b, "\nwhere the time of a pod start of Sextant's goes, in ms\n%s", BudgetTable(r.Budget))
	}
	return b.String()
}

// number is a value with the digits that mean something.
func number(v float64, unit string) string {
	digits := 2
	switch {
	case v >= 100:
		digits = 0
	case v >= 10:
		digits = 1
	case v < 1 && unit == "s":
		digits = 3
	}
	return strings.TrimSuffix(fmt.Sprintf("%.*f %s", digits, v, unit), " ")
}

func (r *Run) cell(subject string, row Row) string {
	v, ok := r.Value(subject, row)
	if !ok {
		return "-"
	}
	return number(v, row.Unit)
}

func (r *Run) ratio(row Row, to string) string {
	v, ok := r.Ratio(row, to)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

// spread is the least and the most of Sextant's values, where there is more than one.
func (r *Run) spread(row Row) string {
	s := r.Subjects[Sextant][row.Sample]
	if len(s) < 2 {
		return ""
	}
	return strings.TrimSuffix(number(s.Quantile(0), row.Unit), " "+row.Unit) + " to " + number(s.Max(), row.Unit)
}

func sizes(all []int) string {
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = strconv.Itoa(n)
	}
	return strings.Join(names, " and ")
}

// Ratio is Sextant's value of a row over another subject's.
func (r *Run) Ratio(row Row, to string) (float64, bool) {
	v, ok := r.Value(Sextant, row)
	other, there := r.Value(to, row)
	if !ok || !there || other == 0 {
		return 0, false
	}
	return v / other, true
}

func (r *Run) target(row Row) string {
	limit, ok := r.Limit(row)
	if !ok {
		return ""
	}
	text := "<= " + number(limit, row.Unit)
	switch name := map[string]string{Floor: "floor", Same: "same", Reference: "kubelet"}[row.Against]; {
	case row.Beyond != 0:
		text += fmt.Sprintf(" (%s + %s)", name, number(row.Beyond, row.Unit))
	case row.Against != "":
		text += fmt.Sprintf(" (%.4g x %s)", row.Factor, name)
	}
	return text
}

// parts shows the samples whose names begin so, one after the other.
func (r *Run) parts(b *strings.Builder, title, prefix string, of func(Series) float64) {
	first := true
	for _, subject := range []string{Reference, Sextant} {
		var cells []string
		for _, key := range slices.Sorted(maps.Keys(r.Subjects[subject])) {
			if name, ok := strings.CutPrefix(key, prefix); ok {
				cells = append(cells, name+" "+number(of(r.Subjects[subject][key]), ""))
			}
		}
		if len(cells) == 0 {
			continue
		}
		if first {
			fmt.Fprintf(b, "\n%s\n", title)
			first = false
		}
		fmt.Fprintf(b, "  %-9s  %s\n", subject, strings.Join(cells, ", "))
	}
}

func (r *Run) requests(b *strings.Builder) {
	titles := map[string]string{
		PodRequests: "API requests per pod started", EndRequests: "API requests per pod deleted", IdleRequests: "API requests per idle minute",
	}
	for _, of := range []string{PodRequests, EndRequests, IdleRequests} {
		title := titles[of]
		for _, subject := range []string{Reference, Sextant} {
			counts := r.Requests[subject][of]
			var cells []string
			for _, name := range slices.Sorted(maps.Keys(counts)) {
				cells = append(cells, fmt.Sprintf("%s %.2f", name, counts[name]))
			}
			if len(cells) > 0 {
				fmt.Fprintf(b, "\n%s, %s\n  %s\n", title, subject, strings.Join(cells, ", "))
			}
		}
	}
}
