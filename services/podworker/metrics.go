// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/shutdown"
)

// metrics of the workers. Names that begin with kubelet_ are the kubelet's and
// mean what they mean there.
type metrics struct {
	steps, forgotten, orphans prometheus.Counter
	actions, failures         *prometheus.CounterVec
	restarted, ended          *prometheus.CounterVec
	round, resizes            *prometheus.HistogramVec
	firstRound, containers    prometheus.Histogram
	swept, stuck              prometheus.Gauge
	downSince, downEnded      prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	to := metric.In(r)
	m := &metrics{
		downSince: to.Gauge("kubelet_graceful_shutdown_start_time_seconds", "When the last graceful shutdown of the node began, in seconds since the epoch."),
		downEnded: to.Gauge("kubelet_graceful_shutdown_end_time_seconds", "When the last graceful shutdown of the node had ended its pods, in seconds since the epoch."),
		steps:     to.Counter("sextant_podworker_steps_total", "Decisions taken about pods."),
		forgotten: to.Counter("sextant_podworker_pods_forgotten_total", "Pods of which nothing is left."),
		actions:   to.Counters("sextant_podworker_actions_total", "Actions begun, by kind.", "kind"),
		failures:  to.Counters("sextant_podworker_action_failures_total", "Actions that failed, by kind.", "kind"),
		orphans:   to.Counter("kubelet_orphaned_runtime_pods_total", "Pods found in the runtime that were to be ended because nobody wants them."),
		restarted: to.Counters("kubelet_restarted_pods_total", "Pods that ended and began anew under the same UID.", "static"),
		ended:     to.Counters("kubelet_terminated_containers_total", "Containers seen to have ended.", "container_type", "exit_code", "reason"),
		round:     to.Histograms("kubelet_pod_worker_duration_seconds", "Duration of what a pod's worker did in one go in seconds.", nil, "operation_type"),
		resizes: to.Histograms("kubelet_pod_resize_duration_milliseconds", "Duration of giving running containers other resources in milliseconds.",
			[]float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}, "success"),
		firstRound: to.Histogram("kubelet_pod_worker_start_duration_seconds", "Duration from seeing a pod to its worker's beginning in seconds.", nil),
		containers: to.Histogram("kubelet_containers_per_pod_count", "Containers of a pod.", []float64{1, 2, 4, 8, 16}),
		swept: to.Gauge("kubelet_orphan_pod_cleaned_volumes",
			"Unknown pods that were cleaned away, volumes included, between the last two searches of the disk."),
		stuck: to.Gauge("kubelet_orphan_pod_cleaned_volumes_errors", "Unknown pods whose volumes could not be removed, at the last search of the disk."),
	}
	for _, static := range []string{"", "true"} {
		m.restarted.WithLabelValues(static)
	}
	return m
}

// shutdownTimes reports the last graceful shutdown, this boot's or the one before.
func (m *metrics) shutdownTimes(s shutdown.State) {
	for gauge, at := range map[prometheus.Gauge]time.Time{m.downSince: s.Since, m.downEnded: s.EndedAt} {
		seconds := 0.0
		if !at.IsZero() {
			seconds = float64(at.UnixNano()) / float64(time.Second)
		}
		gauge.Set(seconds)
	}
}

// staticLabel is what the label "static" says of a pod.
func staticLabel(p *v1.Pod) string {
	if p != nil && pod.IsStatic(p) {
		return "true"
	}
	return ""
}
