// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"math"
	"time"
)

// Who was measured.
const (
	Floor     = "floor"     // the runtime, driven by bare CRI calls with the least they need
	Same      = "same"      // the runtime, driven by bare CRI calls with Sextant's own requests
	Reference = "reference" // the reference kubelet
	Sextant   = "sextant"
)

// subjects are all of them, in the order of the table.
var subjects = []string{Floor, Same, Reference, Sextant}

// Run is one run of the benchmark: every subject on the same machine, runtime
// and API server.
type Run struct {
	When time.Time `json:"when"`
	// Commit is the source that was measured, with "-dirty" if it was changed.
	Commit  string  `json:"commit"`
	Machine Machine `json:"machine"`
	// Pods are how many were started at once, Rounds how often, Single how many one
	// at a time; Idle is how long idle processes were watched.
	Pods   []int         `json:"pods"`
	Rounds int           `json:"rounds"`
	Single int           `json:"single"`
	Idle   time.Duration `json:"idle"`
	// Subjects are the samples by subject and key; rows.go says what keys mean.
	Subjects map[string]map[string]Series `json:"subjects"`
	// Requests are the API requests of each agent, per pod started and per idle
	// minute, by "verb resource".
	Requests map[string]map[string]map[string]float64 `json:"requests,omitempty"`
	// Budget is where the time of a pod start of Sextant's goes.
	Budget []Stage `json:"budget,omitempty"`
}

// Machine is what the figures depend on beside the program.
type Machine struct {
	Cores   int    `json:"cores"`
	Kernel  string `json:"kernel"`
	Runtime string `json:"runtime"`
	Cgroup  string `json:"cgroup"`
	// Busy is the part of all cores that others used while the benchmark was
	// getting ready, 0 to 1. Above a tenth the figures say little.
	Busy float64 `json:"busy"`
}

// Last reports whether a round, counted from zero, is the last: what need not be in
// every round is in that.
func (r *Run) Last(round int) bool { return round == r.Rounds-1 }

// Add puts more values into a sample.
func (r *Run) Add(subject, key string, values ...float64) {
	if r.Subjects == nil {
		r.Subjects = map[string]map[string]Series{}
	}
	if r.Subjects[subject] == nil {
		r.Subjects[subject] = map[string]Series{}
	}
	r.Subjects[subject][key] = append(r.Subjects[subject][key], values...)
}

// Value is what a row shows of a subject; false if it was not measured.
func (r *Run) Value(subject string, row Row) (float64, bool) {
	s := r.Subjects[subject][row.Sample]
	if len(s) == 0 {
		return 0, false
	}
	v := row.Of(s)
	return v, !math.IsNaN(v)
}

// Title is the run in a line.
func (r *Run) Title() string {
	return fmt.Sprintf("%s, %s: %d cores, Linux %s, %s, %s; others used %.0f %% of the machine",
		r.Commit, r.When.UTC().Format("2006-01-02 15:04"), r.Machine.Cores, r.Machine.Kernel, r.Machine.Runtime, r.Machine.Cgroup, 100*r.Machine.Busy)
}
