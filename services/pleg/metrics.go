// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/metric"
)

// metrics carry the kubelet's names, so that its dashboards and alerts work.
type metrics struct {
	relistDuration, relistInterval, podRelist prometheus.Histogram
	lastSeen                                  prometheus.Gauge
	eventErrors, eventConnects, discarded     prometheus.Counter
	eventLatency                              prometheus.Histogram
	losingSupport                             *metric.Series
	running                                   *census
}

func newMetrics(r prometheus.Registerer) *metrics {
	to := metric.In(r)
	m := &metrics{
		relistDuration: to.Histogram("kubelet_pleg_relist_duration_seconds", "Duration of a relist of all pods.", nil),
		relistInterval: to.Histogram("kubelet_pleg_relist_interval_seconds", "Time between two relists.", nil),
		podRelist:      to.Histogram("kubelet_pleg_pod_relist_duration_seconds", "Duration of reading one pod.", nil),
		lastSeen:       to.Gauge("kubelet_pleg_last_seen_seconds", "Unix time of the last relist that succeeded."),
		discarded:      to.Counter("kubelet_pleg_discard_events", "Runtime events that name no pod; each causes a relist."),
		eventErrors:    to.Counter("kubelet_evented_pleg_connection_error_count", "Event streams that broke."),
		eventConnects:  to.Counter("kubelet_evented_pleg_connection_success_count", "Event streams that delivered."),
		eventLatency:   to.Histogram("kubelet_evented_pleg_connection_latency_seconds", "Time from a runtime event to its arrival.", nil),
		losingSupport:  to.Series("kubelet_cri_losing_support", "The runtime lacks what the kubelet of this version will need. The value is always 1.", "version"),
		running:        newCensus(),
	}
	r.MustRegister(m.running)
	return m
}

// needsRuntimeConfig is the first kubelet that will not fall back to its
// configuration when the runtime does not know RuntimeConfig (KEP-4033).
const needsRuntimeConfig = "1.37.0"

// runtimeConfig notes whether the runtime knows RuntimeConfig.
func (m *metrics) runtimeConfig(known bool) {
	lost := map[string]float64{}
	if !known {
		lost[needsRuntimeConfig] = 1
	}
	m.losingSupport.Set(lost)
}
