// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// everybody is the row of a fault that sums up all others.
const everybody = "(all)"

// Table shows rounds by fault and victim: how many, what of each kind was found
// and, where rounds tell of recovery, how long a new pod took, how long one took
// with nothing done, and how long pods waited for a probe.
func Table(rounds []Round, kinds []Kind) string {
	type cell struct{ fault, to string }
	by, victims := map[cell][]Round{}, map[string]map[string]bool{}
	for _, r := range rounds {
		by[cell{r.Fault, r.To}] = append(by[cell{r.Fault, r.To}], r)
		by[cell{r.Fault, everybody}] = append(by[cell{r.Fault, everybody}], r)
		if victims[r.Fault] == nil {
			victims[r.Fault] = map[string]bool{}
		}
		victims[r.Fault][r.To] = true
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	head := []string{"fault", "to", "times"}
	for _, k := range kinds {
		head = append(head, string(k))
	}
	timed := slices.ContainsFunc(rounds, func(r Round) bool { return r.Recovery > 0 })
	if timed {
		head = append(head, "new pod Ready p50", "p99", "max", "undisturbed p50", "p99", "first probe max")
	}
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, key := range slices.SortedFunc(maps.Keys(by), func(a, b cell) int {
		return strings.Compare(a.fault+"\x00"+a.to, b.fault+"\x00"+b.to)
	}) {
		if key.to != everybody || len(victims[key.fault]) > 1 {
			fmt.Fprintln(w, strings.Join(append([]string{key.fault, key.to}, row(by[key], kinds, timed)...), "\t"))
		}
	}
	_ = w.Flush() // into memory
	return b.String()
}

// row is what a table says of rounds of one kind.
func row(rounds []Round, kinds []Kind, timed bool) []string {
	cells := []string{fmt.Sprint(len(rounds))}
	found := map[Kind]int{}
	var recovery, calm, probe []time.Duration
	for _, r := range rounds {
		for _, f := range r.Findings {
			found[f.Kind]++
		}
		recovery, calm, probe = known(recovery, r.Recovery), known(calm, r.Calm), known(probe, r.Probe)
	}
	for _, k := range kinds {
		cells = append(cells, fmt.Sprint(found[k]))
	}
	if !timed {
		return cells
	}
	return append(cells, quantile(recovery, .5), quantile(recovery, .99), quantile(recovery, 1),
		quantile(calm, .5), quantile(calm, .99), quantile(probe, 1))
}

func known(list []time.Duration, d time.Duration) []time.Duration {
	if d > 0 {
		list = append(list, d)
	}
	return list
}

// Quantile is by nearest rank; 0 of nothing.
func Quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[max(int(math.Ceil(q*float64(len(times)))), 1)-1]
}

// quantile as a table shows it.
func quantile(times []time.Duration, q float64) string {
	if len(times) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f s", Quantile(times, q).Seconds())
}
