// SPDX-License-Identifier: Apache-2.0

package metrics

import "strings"

// rule is how a family of several processes is merged.
type rule int

const (
	// passed on as it is: one service owns it.
	passed rule = iota
	// sum over the processes.
	sum
	// greatest of the processes' values.
	greatest
	// own: this process's; those of the others are the same, or cannot be added up.
	own
	// labelled with the service that measured it.
	labelled
)

// exceptions from the rules by prefix.
var exceptions = map[string]rule{
	"go_info":                              own,
	"go_gc_duration_seconds":               own, // quantiles
	"go_gc_gogc_percent":                   own,
	"go_gc_gomemlimit_bytes":               own,
	"go_gc_stack_starting_size_bytes":      own,
	"go_sched_gomaxprocs_threads":          own,
	"go_gc_limiter_last_enabled_gc_cycle":  greatest,
	"go_memstats_last_gc_time_seconds":     greatest,
	"process_network_receive_bytes_total":  own, // of the network all of them share
	"process_network_transmit_bytes_total": own,
	// Sums count from the start of the process that adds up.
	"process_start_time_seconds":       own,
	"process_virtual_memory_max_bytes": greatest,
}

var byPrefix = []struct {
	prefix string
	rule   rule
}{
	{"go_", sum}, {"process_", sum}, {"rest_client_", sum}, {"workqueue_", sum},
	{"apiserver_client_certificate_", sum},
	{"grpc_", labelled}, {"promhttp_", labelled}, {proportional, labelled},
}

func ruleOf(name string) rule {
	if r, ok := exceptions[name]; ok {
		return r
	}
	for _, p := range byPrefix {
		if strings.HasPrefix(name, p.prefix) {
			return p.rule
		}
	}
	return passed
}

// perService are also shown as sextant_<name> with the label service.
var perService = []string{
	"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds",
	"go_goroutines", "go_memstats_heap_inuse_bytes", "go_memstats_next_gc_bytes",
}

// The memory of all services is the sum of their shares: the binary is in memory once, but
// in the resident size of each.
const resident, proportional = "process_resident_memory_bytes", "sextant_process_proportional_memory_bytes"
