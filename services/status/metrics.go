package status

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the kubelet's names where the kubelet has them.
type metrics struct {
	synced                    prometheus.Histogram
	startSeen, startSLI, full prometheus.Histogram
	nodeName                  *prometheus.GaugeVec
}

// startBuckets are the kubelet's for pod starts.
var startBuckets = []float64{
	0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
}

func newMetrics(to prometheus.Registerer, mirrors, pending func() float64) *metrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		synced: histogram("kubelet_pod_status_sync_duration_seconds",
			"Duration in seconds from a changed pod status to its being written at the API server.",
			[]float64{.01, .05, .1, .5, 1, 5, 10, 20, 30, 45, 60}),
		startSeen: histogram("kubelet_pod_start_duration_seconds",
			"Duration in seconds from first seeing a pod to the pod running.", startBuckets),
		startSLI: histogram("kubelet_pod_start_sli_duration_seconds",
			"Duration in seconds from the creation of a pod to its running, without image pulls and init containers.", startBuckets),
		full: histogram("kubelet_pod_start_total_duration_seconds",
			"Duration in seconds from the creation of a pod to its running, image pulls and init containers included.", startBuckets),
		nodeName: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_node_name", Help: "The node's name. The value is always 1.",
		}, []string{"node"}),
	}
	to.MustRegister(m.synced, m.startSeen, m.startSLI, m.full, m.nodeName,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kubelet_mirror_pods", Help: "The number of mirror pods of this node at the API server.",
		}, mirrors),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sextant_status_pending_pods", Help: "The number of pods with something to be written to the API server.",
		}, pending),
	)
	return m
}

func (m *metrics) started(seen, sli, total time.Duration) {
	m.startSeen.Observe(seen.Seconds())
	m.startSLI.Observe(sli.Seconds())
	m.full.Observe(total.Seconds())
}

func (m *metrics) node(name string) {
	m.nodeName.Reset()
	m.nodeName.WithLabelValues(name).Set(1)
}
