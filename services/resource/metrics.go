package resource

import (
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// metrics carry the kubelet's names.
type metrics struct {
	cgroupDuration *prometheus.HistogramVec
	cgroupVersion  prometheus.Gauge
	rejections     *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		cgroupDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_cgroup_manager_duration_seconds", Help: "Duration of cgroup operations.",
		}, []string{"operation_type"}),
		cgroupVersion: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_cgroup_version", Help: "The cgroup version of the host."}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_admission_rejections_total", Help: "Pods refused, by reason.",
		}, []string{"reason"}),
	}
	r.MustRegister(m.cgroupDuration, m.cgroupVersion, m.rejections)
	return m
}

func isStatic(p *v1.Pod) bool { return pod.IsStatic(p) }
