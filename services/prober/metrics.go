// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// metrics carry the kubelet's names (served at /metrics/probes by nodeapi).
type metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	// late is how long after its time a probe began: the node's doing, not the pod's.
	late prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	to := metric.In(r)
	return &metrics{
		total:    to.Counters("prober_probe_total", "Probes by result.", "probe_type", "result", "container", "pod", "namespace", "pod_uid"),
		duration: to.Histograms("prober_probe_duration_seconds", "Duration of probes.", nil, "probe_type", "container", "pod", "namespace"),
		late:     to.Histogram("sextant_prober_lateness_seconds", "How long after its time a probe began.", []float64{0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}),
	}
}

func (m *metrics) observe(p *v1.Pod, t schedule.Target, result schedule.Result, took time.Duration) {
	m.total.WithLabelValues(t.Kind.String(), result.String(), t.Container, p.Name, p.Namespace, t.UID).Inc()
	m.duration.WithLabelValues(t.Kind.String(), t.Container, p.Name, p.Namespace).Observe(took.Seconds())
}

// forget drops the series of a pod that is gone.
func (m *metrics) forget(p *v1.Pod) {
	labels := prometheus.Labels{"pod": p.Name, "namespace": p.Namespace}
	m.duration.DeletePartialMatch(labels)
	m.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(p.UID)})
}
