// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/metric"
)

// metrics are the kubelet's, so that its dashboards and alerts go on working.
type metrics struct {
	total, failed *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	to := metric.In(r)
	return &metrics{
		total:  to.Counters("kubelet_runtime_operations_total", "Calls to the container runtime by operation.", "operation_type"),
		failed: to.Counters("kubelet_runtime_operations_errors_total", "Calls to the container runtime that failed, by operation.", "operation_type"),
		seconds: to.Histograms("kubelet_runtime_operations_duration_seconds", "Duration of calls to the container runtime in seconds, by operation.",
			prometheus.ExponentialBuckets(.005, 2.5, 14), "operation_type"),
	}
}

// observe counts a call when it begins; the function returned, when it ended.
func (m *metrics) observe(operation string) func(err error) {
	started := time.Now()
	m.total.WithLabelValues(operation).Inc()
	return func(err error) {
		m.seconds.WithLabelValues(operation).Observe(time.Since(started).Seconds())
		if err != nil {
			m.failed.WithLabelValues(operation).Inc()
		}
	}
}
