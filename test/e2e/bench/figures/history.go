// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Entry is a run as the history keeps it, one JSON object a line: what each row
// showed, by subject. Samples are not kept.
type Entry struct {
	When    time.Time                     `json:"when"`
	Commit  string                        `json:"commit"`
	Machine Machine                       `json:"machine"`
	Pods    []int                         `json:"pods"`
	Values  map[string]map[string]float64 `json:"values"`
}

// Entry is the run's line in the history.
func (r *Run) Entry() Entry {
	e := Entry{When: r.When.UTC().Truncate(time.Second), Commit: r.Commit, Machine: r.Machine, Pods: r.Pods, Values: map[string]map[string]float64{}}
	for _, subject := range subjects {
		for _, row := range Rows(r.Pods) {
			if v, ok := r.Value(subject, row); ok {
				if e.Values[subject] == nil {
					e.Values[subject] = map[string]float64{}
				}
				e.Values[subject][row.Key] = v
			}
		}
	}
	return e
}

// ReadHistory reads entries, the oldest first; the error names the line.
func ReadHistory(text []byte) ([]Entry, error) {
	var all []Entry
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("history line %d: %w", number, err)
		}
		all = append(all, e)
	}
	return all, lines.Err()
}

// noise is how much a value must grow at least, by unit, to be worse: clocks,
// schedulers and garbage collectors do as much by themselves.
var noise = map[string]float64{"s": .05, "%": .3, "MiB": 5, "": .2}

// Worse lists the rows of both runs in which Sextant is worse than in an earlier one by
// more than a part of it. Machines differ from run to run, so what is compared is Sextant
// beside the reference kubelet of the same run where both runs have one, and the plain
// values only on machines alike.
func Worse(before, now Entry, part float64) []string {
	var list []string
	for _, row := range Rows(now.Pods) {
		old, had := before.Values[Sextant][row.Key]
		v, has := now.Values[Sextant][row.Key]
		if !had || !has {
			continue
		}
		oldRef, v1 := before.Values[Reference][row.Key]
		ref, v2 := now.Values[Reference][row.Key]
		switch {
		case v1 && v2 && oldRef > 0 && ref > 0:
			expected := old / oldRef * ref
			if v > expected*(1+part) && v-expected > noise[row.Unit] {
				list = append(list, fmt.Sprintf("%s: %s, %.2f of the kubelet's; it was %.2f of it at %s",
					row.Label, number(v, row.Unit), v/ref, old/oldRef, before.Commit))
			}
		case before.Machine.Cores == now.Machine.Cores && before.Machine.Kernel == now.Machine.Kernel:
			if v > old*(1+part) && v-old > noise[row.Unit] {
				list = append(list, fmt.Sprintf("%s: %s; it was %s at %s", row.Label, number(v, row.Unit), number(old, row.Unit), before.Commit))
			}
		}
	}
	return list
}
