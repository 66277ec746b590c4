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

	requestedResizes, infeasibleResizes, acceptedResizes *prometheus.CounterVec
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
		requestedResizes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_container_requested_resizes_total", Help: "Values that pods asked to be changed while they run.",
		}, []string{"resource", "requirement", "operation"}),
		infeasibleResizes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_infeasible_resizes_total", Help: "Resizes that this node never allows, by reason.",
		}, []string{"reason_detail"}),
		acceptedResizes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_deferred_accepted_resizes_total", Help: "Resizes allocated after they had been put off, by what made them be judged again.",
		}, []string{"retry_trigger"}),
	}
	r.MustRegister(m.cgroupDuration, m.cgroupVersion, m.rejections, m.requestedResizes, m.infeasibleResizes, m.acceptedResizes)
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

// resizeCensus counts the pods that are being resized, when it is asked for.
type resizeCensus struct{ s *Service }

var (
	pendingResizesDesc  = prometheus.NewDesc("kubelet_pod_pending_resizes", "Pods whose resize is not allocated, by reason.", []string{"reason"}, nil)
	progressResizesDesc = prometheus.NewDesc("kubelet_pod_in_progress_resizes", "Pods whose containers do not have yet what is allocated.", nil, nil)
)

func (resizeCensus) Describe(to chan<- *prometheus.Desc) {
	to <- pendingResizesDesc
	to <- progressResizesDesc
}

func (c resizeCensus) Collect(to chan<- prometheus.Metric) {
	pending, progress := map[string]float64{}, 0.0
	c.s.mu.Lock()
	for _, h := range c.s.held {
		if h.Pending != nil {
			pending[strings.ToLower(h.Pending.Reason)]++
		}
		if h.Allocation > h.Settled {
			progress++
		}
	}
	c.s.mu.Unlock()
	for reason, n := range pending {
		to <- prometheus.MustNewConstMetric(pendingResizesDesc, prometheus.GaugeValue, n, reason)
	}
	to <- prometheus.MustNewConstMetric(progressResizesDesc, prometheus.GaugeValue, progress)
}
