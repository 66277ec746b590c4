package pleg

import (
	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// metrics carry the kubelet's names, so that its dashboards and alerts work.
type metrics struct {
	relistDuration, relistInterval, podRelist prometheus.Histogram
	lastSeen, runningPods                     prometheus.Gauge
	runningContainers                         *prometheus.GaugeVec
	eventErrors, eventConnects                prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.DefBuckets})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		relistDuration: histogram("kubelet_pleg_relist_duration_seconds", "Duration of a relist of all pods."),
		relistInterval: histogram("kubelet_pleg_relist_interval_seconds", "Time between two relists."),
		podRelist:      histogram("kubelet_pleg_pod_relist_duration_seconds", "Duration of reading one pod."),
		lastSeen:       gauge("kubelet_pleg_last_seen_seconds", "Unix time of the last relist that succeeded."),
		runningPods:    gauge("kubelet_running_pods", "Pods with a running sandbox."),
		runningContainers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_running_containers", Help: "Containers by state.",
		}, []string{"container_state"}),
		eventErrors:   counter("kubelet_evented_pleg_connection_error_count", "Event streams that broke."),
		eventConnects: counter("kubelet_evented_pleg_connection_success_count", "Event streams that delivered."),
	}
	r.MustRegister(m.relistDuration, m.relistInterval, m.podRelist, m.lastSeen, m.runningPods, m.runningContainers, m.eventErrors, m.eventConnects)
	return m
}

var stateNames = map[runtimeapi.ContainerState]string{
	runtimeapi.ContainerState_CONTAINER_CREATED: "created",
	runtimeapi.ContainerState_CONTAINER_RUNNING: "running",
	runtimeapi.ContainerState_CONTAINER_EXITED:  "exited",
	runtimeapi.ContainerState_CONTAINER_UNKNOWN: "unknown",
}

func (m *metrics) observe(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) {
	running := 0
	for _, s := range sandboxes {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			running++
		}
	}
	m.runningPods.Set(float64(running))
	counts := map[string]int{}
	for _, c := range containers {
		counts[stateNames[c.GetState()]]++
	}
	for _, name := range stateNames {
		m.runningContainers.WithLabelValues(name).Set(float64(counts[name]))
	}
}
