// SPDX-License-Identifier: Apache-2.0

package figures

// Samples of a run, in seconds, percent of a core, MiB or counts.
const (
	Create       = "create"       // create at the API to Running and Ready there, one pod at a time
	Delete       = "delete"       // delete at the API to gone there, one pod at a time
	Up           = "up"           // Run.Pods pods at once, until the last is Ready
	Down         = "down"         // the same deleted at once, until the last is gone
	EmptyAgent   = "empty.agent"  // CPU of the agent without pods
	EmptyRuntime = "empty.cri"    // CPU of containerd and shims meanwhile
	IdleAgent    = "idle.agent"   // CPU of the agent with Run.Pods pods
	IdleRuntime  = "idle.cri"     // CPU of containerd and shims meanwhile
	EmptyMemory  = "empty.memory" // PSS of the agent's processes without pods
	Memory       = "memory"       // the same with Run.Pods pods
	FirstSync    = "sync"         // start of the agent to Ready of a pod that waits
	Recovery     = "recovery"     // kill -9 to Ready of a pod made at that moment
	PodRequests  = "requests.pod" // API requests of the agent per pod started
	IdleRequests = "requests.min" // API requests of the agent per idle minute
)

// RecoveryOf is the sample of kills of one service.
func RecoveryOf(service string) string { return Recovery + "." + service }

// MemoryOf is the sample of one process's PSS with Run.Pods pods.
func MemoryOf(process string) string { return Memory + "." + process }

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

// Rows are all lines of the table. The limits are those of the design.
func Rows() []Row {
	return []Row{
		{"create.p50", "create to Ready, one at a time, p50", "s", Create, quantile(.5), 1.4, Floor, 0},
		{"create.p90", "create to Ready, one at a time, p90", "s", Create, quantile(.9), 0, "", 0},
		{"create.p99", "create to Ready, one at a time, p99", "s", Create, quantile(.99), 0, "", 0},
		{"up", "create all pods at once to all Ready", "s", Up, quantile(.5), 1.5, Floor, 0},
		{"delete.p50", "delete to gone, one at a time, p50", "s", Delete, quantile(.5), 0, "", 0},
		{"down", "delete all pods at once to all gone", "s", Down, quantile(.5), 0.5, Reference, 0},
		{"empty.agent", "CPU of the agent, no pods", "%", EmptyAgent, Series.Mean, 0, "", 0},
		{"empty.cri", "CPU of containerd and shims, no pods", "%", EmptyRuntime, Series.Mean, 0, "", 0},
		{"idle.agent", "CPU of the agent, all pods idle", "%", IdleAgent, Series.Mean, 1, "", 0},
		{"idle.cri", "CPU of containerd and shims, all pods idle", "%", IdleRuntime, Series.Mean, 1, Floor, 3},
		{"empty.memory", "memory of the agent (PSS), no pods", "MiB", EmptyMemory, Series.Mean, 0, "", 0},
		{"memory", "memory of the agent (PSS), all pods", "MiB", Memory, Series.Mean, 120, "", 0},
		{"sync", "start of the agent to Ready of a waiting pod", "s", FirstSync, quantile(.5), 0, "", 0},
		{"recovery.p50", "kill -9 to Ready of a new pod, p50 of the slowest part", "s", Recovery, quantile(.5), 1, "", 0},
		{"recovery.max", "kill -9 to Ready of a new pod, slowest of all", "s", Recovery, Series.Max, 0, "", 0},
		{"requests.pod", "API requests per pod started", "", PodRequests, Series.Mean, 0, "", 0},
		{"requests.min", "API requests per idle minute", "", IdleRequests, Series.Mean, 0, "", 0},
	}
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
