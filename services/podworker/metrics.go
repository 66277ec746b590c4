package podworker

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// startBuckets are the kubelet's for the start of pods, in seconds.
var startBuckets = []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}

// metrics of the workers. Names that begin with kubelet_ are the kubelet's and
// mean what they mean there.
type metrics struct {
	steps, forgotten, orphans prometheus.Counter
	actions, failures         *prometheus.CounterVec
	restarted, ended          *prometheus.CounterVec
	round                     *prometheus.HistogramVec
	firstRound, started       prometheus.Histogram
	containers                prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		steps:     counter("sextant_podworker_steps_total", "Decisions taken about pods."),
		forgotten: counter("sextant_podworker_pods_forgotten_total", "Pods of which nothing is left."),
		actions:   counters("sextant_podworker_actions_total", "Actions begun, by kind.", "kind"),
		failures:  counters("sextant_podworker_action_failures_total", "Actions that failed, by kind.", "kind"),
		orphans:   counter("kubelet_orphaned_runtime_pods_total", "Pods found in the runtime that were to be ended because nobody wants them."),
		restarted: counters("kubelet_restarted_pods_total", "Static pods that ended and began anew under the same UID.", "static"),
		ended:     counters("kubelet_terminated_containers_total", "Containers seen to have ended.", "container_type", "exit_code", "reason"),
		round: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_duration_seconds", Help: "Duration of one round of a pod's worker in seconds.", Buckets: prometheus.DefBuckets,
		}, []string{"operation_type"}),
		firstRound: histogram("kubelet_pod_worker_start_duration_seconds", "Duration from seeing a pod to its worker's first round in seconds.", prometheus.DefBuckets),
		started:    histogram("kubelet_pod_start_duration_seconds", "Duration from seeing a pod to all its containers having started in seconds.", startBuckets),
		containers: histogram("kubelet_containers_per_pod_count", "Containers of a pod.", []float64{1, 2, 4, 8, 16}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.steps, m.forgotten, m.actions, m.failures, m.orphans, m.restarted, m.ended, m.round, m.firstRound, m.started, m.containers,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("podworker metrics: %w", err)
		}
	}
	return m, nil
}

// operations are the kubelet's words for what a round is about.
var operations = map[step.State]string{
	step.Pending: "create", step.Syncing: "sync", step.Terminating: "kill", step.Terminated: "terminated",
	step.Released: "terminated", step.Rejected: "terminated",
}

// rounds counts one round of a worker.
func (w *worker) rounds(began time.Time, plan *step.Plan) {
	m := w.l.metrics
	m.steps.Inc()
	if w.facts.State == "" {
		m.firstRound.Observe(w.l.clock.Since(w.born).Seconds())
	}
	m.round.WithLabelValues(operations[plan.Facts.State]).Observe(w.l.clock.Since(began).Seconds())
	if t := plan.Facts.Termination; t != nil && w.facts.Termination == nil && t.Cause == step.Orphan {
		m.orphans.Inc()
	}
	if !w.counted && plan.Facts.State == step.Syncing && plan.Wait == nil && w.accepted != nil {
		w.counted = true
		n := 0
		for range pod.Containers(w.accepted) {
			n++
		}
		m.containers.Observe(float64(n))
		if !plan.Facts.StartedAt.Before(w.born) { // else it was adopted
			m.started.Observe(w.l.clock.Since(plan.Facts.StartedAt).Seconds())
		}
	}
}

// deaths counts the containers that a record newly shows as ended.
func (w *worker) deaths(record *observe.Record, id string) {
	status := record.Statuses[id]
	kind := "container"
	if w.accepted != nil {
		switch _, k := pod.FindContainer(w.accepted, status.GetMetadata().GetName()); k {
		case pod.Init, pod.Sidecar:
			kind = "init_container"
		case pod.Ephemeral:
			kind = "ephemeral_container"
		}
	}
	w.l.metrics.ended.WithLabelValues(kind, strconv.Itoa(int(status.GetExitCode())), status.GetReason()).Inc()
}

// working counts pods as the kubelet's gauges do.
type working struct{ l *loop }

var (
	activeDesc  = prometheus.NewDesc("kubelet_active_pods", "Pods that run or are to run.", []string{"static"}, nil)
	workingDesc = prometheus.NewDesc("kubelet_working_pods", "Pods that have a worker.", []string{"lifecycle", "config", "static"}, nil)
)

// Describe implements prometheus.Collector.
func (c working) Describe(out chan<- *prometheus.Desc) { out <- activeDesc; out <- workingDesc }

// Collect implements prometheus.Collector.
func (c working) Collect(out chan<- prometheus.Metric) {
	type row struct{ lifecycle, config, static string }
	rows, active := map[row]float64{}, map[string]float64{"": 0, "true": 0}
	c.l.mu.Lock()
	for uid, w := range c.l.workers {
		r := row{"sync", "orphan", "unknown"}
		if w.isStatic != nil {
			r.static = ""
			if *w.isStatic {
				r.static = "true"
			}
		} else {
			r.config = "runtime_only"
		}
		if _, ok := c.l.in.Pods.Get(string(uid)); ok {
			r.config = "desired"
		}
		switch w.shown {
		case step.Terminating:
			r.lifecycle = "terminating"
		case step.Terminated, step.Released, step.Rejected:
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
}
