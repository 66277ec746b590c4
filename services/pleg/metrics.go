// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics carry the kubelet's names, so that its dashboards and alerts work.
type metrics struct {
	relistDuration, relistInterval, podRelist prometheus.Histogram
	lastSeen                                  prometheus.Gauge
	eventErrors, eventConnects, discarded     prometheus.Counter
	eventLatency                              prometheus.Histogram
	losingSupport                             *prometheus.GaugeVec
	running                                   *census
}

func newMetrics(r prometheus.Registerer) *metrics {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.DefBuckets})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		relistDuration: histogram("kubelet_pleg_relist_duration_seconds", "Duration of a relist of all pods."),
		relistInterval: histogram("kubelet_pleg_relist_interval_seconds", "Time between two relists."),
		podRelist:      histogram("kubelet_pleg_pod_relist_duration_seconds", "Duration of reading one pod."),
		lastSeen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_pleg_last_seen_seconds", Help: "Unix time of the last relist that succeeded.",
		}),
		discarded:     counter("kubelet_pleg_discard_events", "Runtime events that name no pod; each causes a relist."),
		eventErrors:   counter("kubelet_evented_pleg_connection_error_count", "Event streams that broke."),
		eventConnects: counter("kubelet_evented_pleg_connection_success_count", "Event streams that delivered."),
		eventLatency:  histogram("kubelet_evented_pleg_connection_latency_seconds", "Time from a runtime event to its arrival."),
		losingSupport: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_cri_losing_support", Help: "The runtime lacks what the kubelet of this version will need. The value is always 1.",
		}, []string{"version"}),
		running: newCensus(),
	}
	r.MustRegister(m.relistDuration, m.relistInterval, m.podRelist, m.lastSeen, m.discarded,
		m.eventErrors, m.eventConnects, m.eventLatency, m.losingSupport, m.running)
	return m
}

// needsRuntimeConfig is the first kubelet that will not fall back to its
// configuration when the runtime does not know RuntimeConfig (KEP-4033).
const needsRuntimeConfig = "1.37.0"

// runtimeConfig notes whether the runtime knows RuntimeConfig.
func (m *metrics) runtimeConfig(known bool) {
	if m.losingSupport.Reset(); !known {
		m.losingSupport.WithLabelValues(needsRuntimeConfig).Set(1)
	}
}
