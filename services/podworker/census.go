// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// census counts pods as the kubelet's gauges do, at the time of asking.
type census struct{ l *loop }

var (
	activeDesc    = prometheus.NewDesc("kubelet_active_pods", "Pods that run or are to run.", []string{"static"}, nil)
	workingDesc   = prometheus.NewDesc("kubelet_working_pods", "Pods that have a worker.", []string{"lifecycle", "config", "static"}, nil)
	ephemeralDesc = prometheus.NewDesc("kubelet_managed_ephemeral_containers", "Ephemeral containers of the pods this node should run.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c census) Describe(out chan<- *prometheus.Desc) {
	out <- activeDesc
	out <- workingDesc
	out <- ephemeralDesc
}

// working is a row of kubelet_working_pods.
type working struct{ lifecycle, config, static string }

// workingRows are all there are: those without a pod are reported too.
func workingRows() map[working]float64 {
	rows := map[working]float64{}
	for _, lifecycle := range []string{"sync", "terminating", "terminated"} {
		for _, config := range []string{"desired", "orphan"} {
			for _, static := range []string{"", "true"} {
				rows[working{lifecycle, config, static}] = 0
			}
		}
		rows[working{lifecycle, "runtime_only", "unknown"}] = 0
	}
	return rows
}

// Collect implements prometheus.Collector.
func (c census) Collect(out chan<- prometheus.Metric) {
	rows, active := workingRows(), map[string]float64{"": 0, "true": 0}
	c.l.mu.Lock()
	for uid, w := range c.l.workers {
		if w.outward.state == step.Rejected {
			continue // the kubelet has no worker for a pod that it refused
		}
		r := working{"sync", "orphan", ""}
		switch {
		case w.outward.static == nil:
			r.config, r.static = "runtime_only", "unknown"
		case *w.outward.static:
			r.static = "true"
		}
		if _, ok := c.l.in.Pods.Get(string(uid)); ok && w.outward.static != nil {
			r.config = "desired"
		}
		switch w.outward.state {
		case step.Terminating:
			r.lifecycle = "terminating"
		case step.Terminated, step.Released:
			r.lifecycle = "terminated"
		default:
			if r.config == "desired" {
				active[r.static]++
			}
		}
		rows[r]++
	}
	c.l.mu.Unlock()
	for static, n := range active {
		out <- prometheus.MustNewConstMetric(activeDesc, prometheus.GaugeValue, n, static)
	}
	for r, n := range rows {
		out <- prometheus.MustNewConstMetric(workingDesc, prometheus.GaugeValue, n, r.lifecycle, r.config, r.static)
	}
	ephemeral := 0
	for _, d := range c.l.in.Pods.Items() {
		ephemeral += len(d.Pod.Spec.EphemeralContainers)
	}
	out <- prometheus.MustNewConstMetric(ephemeralDesc, prometheus.GaugeValue, float64(ephemeral))
}
