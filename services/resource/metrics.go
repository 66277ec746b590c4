package resource

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
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

// bounded are the reasons told as they are that begin as those of a resource.
var bounded = []string{"OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods"}

// rejectionLabel keeps names that users make up out of the label.
func rejectionLabel(reason string) string {
	if strings.HasPrefix(reason, "OutOf") && !slices.Contains(bounded, reason) {
		return "OutOfExtendedResources"
	}
	return reason
}

func isStatic(p *v1.Pod) bool { return pod.IsStatic(p) }

// logSizes is measured when it is asked for.
type logSizes struct{ s *Service }

var logSizesDesc = prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes",
	"Bytes a container's log files take.", []string{"uid", "namespace", "pod", "container"}, nil)

func (logSizes) Describe(to chan<- *prometheus.Desc) { to <- logSizesDesc }

func (l logSizes) Collect(to chan<- prometheus.Metric) {
	l.s.mu.Lock()
	now := l.s.settings
	l.s.mu.Unlock()
	if now == nil {
		return
	}
	for _, p := range l.s.gauges.files.get(l.s.now, func(time.Time) []*resourcev1.PodFiles { return l.s.readFiles(now) }) {
		for _, c := range p.GetLogs() {
			to <- prometheus.MustNewConstMetric(logSizesDesc, prometheus.GaugeValue, float64(c.GetBytes()),
				p.GetUid(), p.GetNamespace(), p.GetName(), c.GetContainer())
		}
	}
}
