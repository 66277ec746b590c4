// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/child"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
)

// metrics carry the kubelet's names.
type metrics struct {
	duration, measuring, whole, calls *prometheus.HistogramVec
	reconstructed, reconstructErrors  prometheus.Counter
	forced, forcedErrors              prometheus.Counter
}

// buckets of volume operations, in seconds.
var buckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

func newMetrics(r prometheus.Registerer) *metrics {
	to := metric.In(r)
	return &metrics{
		duration:          to.Histograms("storage_operation_duration_seconds", "Duration of volume operations.", buckets, "volume_plugin", "operation_name", "status", "migrated"),
		whole:             to.Histograms("volume_operation_total_seconds", "Time from asking for a volume to its being mounted, failures and waits included.", buckets, "plugin_name", "operation_name"),
		measuring:         to.Histograms("kubelet_volume_metric_collection_duration_seconds", "Duration of measuring a volume.", nil, "metric_source"),
		calls:             to.Histograms("csi_operations_seconds", "Duration of calls to CSI drivers.", buckets, "driver_name", "method_name", "grpc_status_code", "migrated"),
		reconstructed:     to.Counter("reconstruct_volume_operations_total", "Volumes found on disk at the start."),
		reconstructErrors: to.Counter("reconstruct_volume_operations_errors_total", "Volumes found on disk at the start of whose pod nothing was known."),
		forced:            to.Counter("force_cleaned_failed_volume_operations_total", "Volumes removed of whose pod nothing was known."),
		forcedErrors:      to.Counter("force_cleaned_failed_volume_operation_errors_total", "Removals of volumes that failed, of whose pod nothing was known."),
	}
}

func (m *metrics) measured(source measure.Source, took time.Duration) {
	m.measuring.WithLabelValues(string(source)).Observe(took.Seconds())
}

// called observes one call to a driver (csi.Observe).
func (m *metrics) called(driver, method, code string, took time.Duration) {
	m.calls.WithLabelValues(driver, method, code, "false").Observe(took.Seconds())
}

// mounted observes one attempt to make sure of a volume, unmounted one to remove it: the
// volumes of a pod are removed together, and each counts the time of all.
func (m *metrics) mounted(plugin string, err error, took time.Duration) {
	m.observe(plugin, "volume_mount", err, took)
}

func (m *metrics) unmounted(p *v1.Pod, err error, took time.Duration) {
	for i := range p.Spec.Volumes {
		m.observe(volumetype.Of(&p.Spec.Volumes[i]).Plugin, "volume_unmount", err, took)
	}
}

func (m *metrics) observe(plugin, operation string, err error, took time.Duration) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.duration.WithLabelValues(plugin, operation, status, "false").Observe(took.Seconds())
}

// lost counts the processes that file systems without an answer hold.
func (m *metrics) lost(children *child.Pool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sextant_volume_lost_processes", Help: "Processes that wait in the kernel for file systems that do not answer, left to themselves.",
	}, func() float64 { return float64(len(children.Lost())) })
}

// census counts volumes at each scrape.
type census struct{ pods *pods }

var totalDesc = prometheus.NewDesc("volume_manager_total_volumes",
	"Volumes that are, and that are to be.", []string{"plugin_name", "state"}, nil)

// Describe implements prometheus.Collector.
func (census) Describe(to chan<- *prometheus.Desc) { to <- totalDesc }

// Collect implements prometheus.Collector.
func (c census) Collect(to chan<- prometheus.Metric) {
	type row struct{ plugin, state string }
	rows := map[row]int{}
	c.pods.mu.Lock()
	for _, w := range c.pods.all {
		if w.pod == nil {
			continue
		}
		for i := range w.pod.Spec.Volumes {
			v := &w.pod.Spec.Volumes[i]
			if !w.withdrawing {
				rows[row{volumetype.Of(v).Plugin, "desired_state_of_world"}]++
			}
			if made := w.volumes[v.Name]; made != nil && made.state == mounted {
				rows[row{volumetype.Of(v).Plugin, "actual_state_of_world"}]++
			}
		}
	}
	c.pods.mu.Unlock()
	for r, n := range rows {
		to <- prometheus.MustNewConstMetric(totalDesc, prometheus.GaugeValue, float64(n), r.plugin, r.state)
	}
}

// claims are the volumes of claims, measured at each scrape.
type claims struct {
	stats func(context.Context) []*volumev1.VolumeStats
}

var claimDescs = []struct {
	desc  *prometheus.Desc
	value func(*volumev1.VolumeStats) uint64
}{
	{claimDesc("capacity_bytes", "Size of the volume."), (*volumev1.VolumeStats).GetCapacity},
	{claimDesc("available_bytes", "Bytes left in the volume."), (*volumev1.VolumeStats).GetAvailable},
	{claimDesc("used_bytes", "Bytes used in the volume."), (*volumev1.VolumeStats).GetUsed},
	{claimDesc("inodes", "Most inodes of the volume."), (*volumev1.VolumeStats).GetInodes},
	{claimDesc("inodes_free", "Inodes left in the volume."), (*volumev1.VolumeStats).GetInodesFree},
	{claimDesc("inodes_used", "Inodes used in the volume."), (*volumev1.VolumeStats).GetInodesUsed},
}

var healthDesc = claimDesc("health_status_abnormal", "Whether the volume's driver says that something is wrong with it.")

func claimDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

func (claims) Describe(to chan<- *prometheus.Desc) {
	for _, c := range claimDescs {
		to <- c.desc
	}
	to <- healthDesc
}

// Collect has each claim once, however many pods have it.
func (c claims) Collect(to chan<- prometheus.Metric) {
	seen := map[string]bool{}
	for _, v := range c.stats(context.Background()) {
		key := v.GetClaimNamespace() + "/" + v.GetClaim()
		if v.GetClaim() == "" || seen[key] {
			continue
		}
		seen[key] = true
		for _, d := range claimDescs {
			to <- prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, float64(d.value(v)), v.GetClaimNamespace(), v.GetClaim())
		}
		if v.Abnormal != nil {
			abnormal := 0.0
			if v.GetAbnormal() {
				abnormal = 1
			}
			to <- prometheus.MustNewConstMetric(healthDesc, prometheus.GaugeValue, abnormal, v.GetClaimNamespace(), v.GetClaim())
		}
	}
}
