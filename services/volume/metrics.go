package volume

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics carry the kubelet's names.
type metrics struct{ duration *prometheus.HistogramVec }

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "storage_operation_duration_seconds", Help: "Duration of volume operations.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})}
	r.MustRegister(m.duration)
	return m
}

func (m *metrics) observe(plugin string, err error, took time.Duration) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.duration.WithLabelValues(plugin, "volume_mount", status, "false").Observe(took.Seconds())
}
