package service

import (
	"bufio"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
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
	}, func() float64 { return pss("/proc/self/smaps_rollup") })
}

// pss is NaN where the kernel does not tell.
func pss(path string) float64 {
	f, err := os.Open(path)
	if err != nil {
		return math.NaN()
	}
	defer f.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "Pss:" {
			continue
		}
		if kib, err := strconv.ParseFloat(fields[1], 64); err == nil {
			return kib * 1024
		}
	}
	return math.NaN()
}
