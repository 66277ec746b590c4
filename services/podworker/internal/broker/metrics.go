// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's, so that its dashboards and alerts go on working.
type metrics struct {
	total, failed *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	labels := []string{"operation_type"}
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total",
			Help: "Calls to the container runtime by operation.",
		}, labels),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total",
			Help: "Calls to the container runtime that failed, by operation.",
		}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_runtime_operations_duration_seconds",
			Help:    "Duration of calls to the container runtime in seconds, by operation.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, labels),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.total, m.failed, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
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
