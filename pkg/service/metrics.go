// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/store"
	"github.com/sextant-node/sextant/pkg/wire"
)

// processFamilies are what Kubernetes' libraries measure of any process they are
// in: the Go runtime, the process, clients of the API server, work queues, and the
// certificates of callers. What else they register is about API servers, which
// this is none of.
var processFamilies = []string{"go_", "process_", "rest_client_", "workqueue_", "apiserver_client_certificate_"}

// Gather implements prometheus.Gatherer: the service's families and those of its
// process, which are the kubelet's by name, labels and buckets.
func (k *Kit) Gather() ([]*dto.MetricFamily, error) {
	return prometheus.Gatherers{k.Metrics, prometheus.GathererFunc(gatherProcess)}.Gather()
}

func gatherProcess() ([]*dto.MetricFamily, error) {
	all, err := legacyregistry.DefaultGatherer.Gather()
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
		return !slices.ContainsFunc(processFamilies, func(prefix string) bool { return strings.HasPrefix(f.GetName(), prefix) })
	}), err
}

// proportional is the memory of the process with what it shares with others
// counted by its share (PSS, proc_pid_smaps(5)): of processes that run one binary
// these add up to what they take, as their resident sizes do not.
func proportional() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sextant_process_proportional_memory_bytes",
		Help: "Resident memory in bytes, with what is shared between processes counted by its share.",
	}, func() float64 {
		bytes, err := PSS("/proc/self/smaps_rollup")
		if err != nil { // where the kernel does not report it
			return math.NaN()
		}
		return float64(bytes)
	})
}

// cleaned counts the messages of the process that had text which was not UTF-8.
func cleaned(s house.Service) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "sextant_cleaned_messages_total",
		Help:        "Messages whose text was not UTF-8, and was replaced before they were sent or kept.",
		ConstLabels: prometheus.Labels{"service": string(s)},
	}, func() float64 { return float64(wire.Cleaned()) })
}

// build says which version of the program runs a service: one by one they are upgraded and
// rolled back.
func build(s house.Service) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "sextant_build_info",
		Help:        "The version of the program that runs a service. The value is always 1.",
		ConstLabels: prometheus.Labels{"service": string(s), "version": Version},
	}, func() float64 { return 1 })
}

// Configured registers the generation of the configuration that the service runs: 0 while
// it has none. One that stays behind those of others does not read its feed.
func (k *Kit) Configured(generation func() uint64) {
	k.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "sextant_configuration_generation",
		Help:        "Generation of the configuration that a service runs.",
		ConstLabels: prometheus.Labels{"service": string(k.Service)},
	}, func() float64 { return float64(generation()) }))
}

// commits counts what the process wrote to its durable file.
func commits(s house.Service) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "sextant_state_file_commits_total",
		Help:        "Transactions of the durable file, each of which waited for the disk.",
		ConstLabels: prometheus.Labels{"service": string(s)},
	}, func() float64 { return float64(store.Commits()) })
}

// work counts what feeds give a process to do; it asks them at the scrape.
type work struct {
	kit                                *Kit
	changes, pulls, decodings, volumes *prometheus.Desc
}

func newWork(k *Kit) *work {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("sextant_feed_"+name, help, []string{"feed"}, prometheus.Labels{"service": string(k.Service)})
	}
	return &work{
		kit:       k,
		changes:   desc("changes_total", "Changes of a feed that the service serves."),
		pulls:     desc("pulls_total", "Answers to this reader of a feed."),
		decodings: desc("decodings_total", "Items of a feed that this reader decoded."),
		volumes:   desc("bytes_total", "Size of the items of a feed that this reader was given."),
	}
}

// Describe implements prometheus.Collector.
func (w *work) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{w.changes, w.pulls, w.decodings, w.volumes} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (w *work) Collect(to chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n uint64, feed string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), feed)
	}
	for _, f := range w.kit.feeds.Sources() {
		revision, _, _ := f.State()
		count(w.changes, revision.N, f.Name())
	}
	w.kit.mu.Lock()
	replicas := slices.Clone(w.kit.replicas)
	w.kit.mu.Unlock()
	for _, r := range replicas {
		c := r.Counts()
		count(w.pulls, c.Pulls, r.Feed())
		count(w.decodings, c.Decodings, r.Feed())
		count(w.volumes, c.Bytes, r.Feed())
	}
}

// PSS is the memory of a process with what it shares with others counted by its share, in
// bytes, by the process's smaps_rollup (proc_pid_smaps(5)), which only root may read of others.
func PSS(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) >= 2 && fields[0] == "Pss:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s: no Pss line", path)
}
