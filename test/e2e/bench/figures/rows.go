// SPDX-License-Identifier: Apache-2.0

package figures

import "fmt"

// Samples of a run, in seconds, percent of a core, MiB or counts. What depends on how
// many pods there are has their number behind its name (Of).
const (
	Create       = "create"       // create at the API to Running and Ready there, one pod at a time
	Delete       = "delete"       // delete at the API to gone there, one pod at a time
	After        = "after"        // Create, right after the end of the largest burst
	Up           = "up"           // so many pods at once, until the last is Ready
	UpCPU        = "up.cpu"       // CPU of the agent meanwhile, in seconds
	Down         = "down"         // the same deleted at once, until the last is gone
	DownCPU      = "down.cpu"     // CPU of the agent meanwhile, in seconds
	EmptyAgent   = "empty.agent"  // CPU of the agent without pods
	EmptyRuntime = "empty.cri"    // CPU of containerd and shims meanwhile
	IdleAgent    = "idle.agent"   // CPU of the agent with so many pods
	IdleRuntime  = "idle.cri"     // CPU of containerd and shims meanwhile
	EmptyMemory  = "empty.memory" // PSS of the agent's processes without pods
	Memory       = "memory"       // the same with so many pods
	AfterMemory  = "after.memory" // the same after the largest burst is gone
	FirstSync    = "sync"         // start of the agent to Ready of a pod that waits
	Recovery     = "recovery"     // kill -9 to Ready of a pod made at that moment
	PodRequests  = "requests.pod" // API requests of the agent per pod started
	EndRequests  = "requests.end" // API requests of the agent per pod deleted
	IdleRequests = "requests.min" // API requests of the agent per idle minute
)

// Of is the sample of so many pods at once.
func Of(sample string, pods int) string { return fmt.Sprintf("%s.%d", sample, pods) }

// PartOf is a sample of one process or service.
func PartOf(sample, part string) string { return sample + "/" + part }

// Row is a line of the table: a sample, what is shown of it, and the number to
// beat.
type Row struct {
	// Key names the row for good: histories are compared by it.
	Key, Label, Unit string
	Sample           string
	Of               func(Series) float64
	// Limit is the most that Sextant may have: Factor times what Against has and
	// Beyond, or Factor itself if Against is empty. A Factor of 0 is for no limit.
	Factor  float64
	Against string
	Beyond  float64
}

func quantile(q float64) func(Series) float64 {
	return func(s Series) float64 { return s.Quantile(q) }
}

// Rows are all lines of the table for bursts of these sizes. The limits are those of the
// design.
func Rows(sizes []int) []Row {
	rows := []Row{
		{"create.p50", "create to Ready, one at a time, p50", "s", Create, quantile(.5), 1.4, Same, 0},
		{"create.p90", "create to Ready, one at a time, p90", "s", Create, quantile(.9), 0, "", 0},
		{"create.p99", "create to Ready, one at a time, p99", "s", Create, quantile(.99), 0, "", 0},
		{"after.max", "the same right after the end of the largest burst, slowest", "s", After, Series.Max, 1, Reference, 0},
		{"delete.p50", "delete to gone, one at a time, p50", "s", Delete, quantile(.5), 0, "", 0},
	}
	for _, n := range sizes {
		rows = append(rows, burst(n)...)
	}
	return append(rows, []Row{
		{"empty.agent", "CPU of the agent, no pods", "%", EmptyAgent, Series.Mean, 0, "", 0},
		{"empty.cri", "CPU of containerd and shims, no pods", "%", EmptyRuntime, Series.Mean, 0, "", 0},
		{"empty.memory", "memory of the agent (PSS), no pods", "MiB", EmptyMemory, Series.Mean, 0, "", 0},
		{"after.memory", "memory of the agent (PSS), after the largest burst", "MiB", AfterMemory, Series.Mean, 1, Reference, 0},
		{"sync", "start of the agent to Ready of a waiting pod", "s", FirstSync, quantile(.5), 1, Reference, 0},
		{"recovery.p50", "kill -9 to Ready of a new pod, p50 of the slowest part", "s", Recovery, quantile(.5), 1, "", 0},
		{"recovery.max", "kill -9 to Ready of a new pod, slowest of all", "s", Recovery, Series.Max, 0, "", 0},
		{"requests.pod", "API requests per pod started", "", PodRequests, Series.Mean, 0, "", 0},
		{"requests.end", "API requests per pod deleted", "", EndRequests, Series.Mean, 0, "", 0},
		{"requests.min", "API requests per idle minute", "", IdleRequests, Series.Mean, 0, "", 0},
	}...)
}

// burst are the rows of so many pods at once.
func burst(n int) []Row {
	row := func(sample, label, unit string, of func(Series) float64, factor float64, against string, beyond float64) Row {
		return Row{Of(sample, n), fmt.Sprintf(label, n), unit, Of(sample, n), of, factor, against, beyond}
	}
	up := 1.3
	if n > 100 {
		up = 1.25
	}
	return []Row{
		row(Up, "create %d at once to all Ready", "s", quantile(.5), up, Floor, 0),
		row(UpCPU, "CPU of the agent in that, %d pods", "s", quantile(.5), share(n, 4, 10), "", 0),
		row(Down, "delete %d at once to all gone", "s", quantile(.5), 1.1, Floor, 0),
		row(DownCPU, "CPU of the agent in the end of %d pods", "s", quantile(.5), share(n, 3, 8), "", 0),
		row(IdleAgent, "CPU of the agent, %d pods idle", "%", Series.Mean, .7, "", 0),
		row(IdleRuntime, "CPU of containerd and shims, %d pods idle", "%", Series.Mean, 1, Floor, 3),
		row(Memory, "memory of the agent (PSS), %d pods", "MiB", Series.Mean, 1, Reference, 0),
	}
}

// share is a limit for n pods on the line through that for 100 and that for 240; in
// proportion to the one for 100 below.
func share(n int, of100, of240 float64) float64 {
	if n <= 100 {
		return of100 * float64(n) / 100
	}
	return of100 + (of240-of100)*float64(n-100)/140
}

// Limit is the most that a row of Sextant's may show in a run; false for no
// limit, or when what it is measured against is missing.
func (r *Run) Limit(row Row) (float64, bool) {
	if row.Factor == 0 {
		return 0, false
	}
	if row.Against == "" {
		return row.Factor, true
	}
	v, ok := r.Value(row.Against, row)
	return row.Factor*v + row.Beyond, ok
}
