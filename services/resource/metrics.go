// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/metric"
)

// metrics carry the kubelet's names.
type metrics struct {
	cgroupDuration *prometheus.HistogramVec
	cgroupVersion  prometheus.Gauge
	rejections     *prometheus.CounterVec
	evictions      *prometheus.CounterVec
	preemptions    *prometheus.CounterVec
	statsAge       *prometheus.HistogramVec

	claimOperations, driverCalls *prometheus.HistogramVec
	deviceRegistrations          *prometheus.CounterVec
	deviceAllocations            *prometheus.HistogramVec

	requestedResizes, infeasibleResizes, acceptedResizes *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	to := metric.In(r)
	return &metrics{
		cgroupDuration:      to.Histograms("kubelet_cgroup_manager_duration_seconds", "Duration of cgroup operations.", nil, "operation_type"),
		cgroupVersion:       to.Gauge("kubelet_cgroup_version", "The cgroup version of the host."),
		rejections:          to.Counters("kubelet_admission_rejections_total", "Pods refused, by reason.", "reason"),
		evictions:           to.Counters("kubelet_evictions", "Pods evicted, by the signal or limit.", "eviction_signal"),
		preemptions:         to.Counters("kubelet_preemptions", "Pods ended to make room for a critical one, by the resource that was missing.", "preemption_signal"),
		statsAge:            to.Histograms("kubelet_eviction_stats_age_seconds", "How old the measurements were by which pods were evicted.", nil, "eviction_signal"),
		claimOperations:     to.Histograms("dra_operations_duration_seconds", "Duration of preparing or unpreparing the resource claims of a pod.", claimBuckets, "operation_name", "is_error"),
		driverCalls:         to.Histograms("dra_grpc_operations_duration_seconds", "Duration of calls of DRA drivers.", claimBuckets, "driver_name", "method_name", "grpc_status_code"),
		deviceRegistrations: to.Counters("kubelet_device_plugin_registration_total", "Registrations of device plugins.", "resource_name"),
		deviceAllocations:   to.Histograms("kubelet_device_plugin_alloc_duration_seconds", "Duration of Allocate calls to device plugins.", nil, "resource_name"),
		requestedResizes:    to.Counters("kubelet_container_requested_resizes_total", "Values that pods asked to be changed while they run.", "resource", "requirement", "operation"),
		infeasibleResizes:   to.Counters("kubelet_pod_infeasible_resizes_total", "Resizes that this node never allows, by reason.", "reason_detail"),
		acceptedResizes:     to.Counters("kubelet_pod_deferred_accepted_resizes_total", "Resizes allocated after they had been put off, by what made them be judged again.", "retry_trigger"),
	}
}

// claimBuckets are the kubelet's: up to the limit of a call.
var claimBuckets = prometheus.ExponentialBucketsRange(.1, 40, 15)

// named are the reasons that the kubelet counts by name; of the others, some could be
// made up by users.
var named = []string{
	"AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InvalidNodeInfo", "InitContainerRestartPolicyForbidden",
	"SupplementalGroupsPolicyNotSupported", "UnexpectedAdmissionError", "UnknownReason", "UnexpectedPredicateFailureType",
	"OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods", "PodLevelResourcesNotSupported", "PodFeatureUnsupported",
	"Evicted", "SysctlForbidden", "TopologyAffinityError", "NodeShutdown", "VolumeAttachmentLimitExceeded",
}

// rejectionLabel is the label of a reason, as the kubelet has it.
func rejectionLabel(reason string) string {
	switch {
	case slices.Contains(named, reason):
		return reason
	case strings.HasPrefix(reason, "OutOf"):
		return "OutOfExtendedResources"
	}
	return "Other"
}

// logSizes is measured when it is asked for.
type logSizes struct{ readings *readings }

var logSizesDesc = prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes",
	"Bytes a container's log files take.", []string{"uid", "namespace", "pod", "container"}, nil)

func (logSizes) Describe(to chan<- *prometheus.Desc) { to <- logSizesDesc }

func (l logSizes) Collect(to chan<- prometheus.Metric) {
	now, _ := l.readings.node.now()
	if now == nil {
		return
	}
	for _, p := range l.readings.ofFiles(now) {
		for _, c := range p.GetLogs() {
			to <- prometheus.MustNewConstMetric(logSizesDesc, prometheus.GaugeValue, float64(c.GetBytes()),
				p.GetUid(), p.GetNamespace(), p.GetName(), c.GetContainer())
		}
	}
}

// protectionCensus is how much memory of pods is protected, measured when it is asked for.
// It shows nothing without the gate MemoryQoS or cgroup v2 (KEP-2570).
type protectionCensus struct {
	ledger *ledger
	node   *node
}

var (
	memoryMinDesc = prometheus.NewDesc("kubelet_memory_qos_node_memory_min_bytes", "Bytes of memory that Guaranteed pods never lose.", nil, nil)
	memoryLowDesc = prometheus.NewDesc("kubelet_memory_qos_node_memory_low_bytes", "Bytes of memory that Burstable pods lose last.", nil, nil)
)

func (protectionCensus) Describe(to chan<- *prometheus.Desc) {
	to <- memoryMinDesc
	to <- memoryLowDesc
}

func (c protectionCensus) Collect(to chan<- prometheus.Metric) {
	now, _ := c.node.now()
	if now == nil || !now.protects() {
		return
	}
	protected := map[v1.PodQOSClass]int64{}
	if now.tiered() {
		protected = c.ledger.sum(true).memory
	}
	to <- prometheus.MustNewConstMetric(memoryMinDesc, prometheus.GaugeValue, float64(protected[v1.PodQOSGuaranteed]))
	to <- prometheus.MustNewConstMetric(memoryLowDesc, prometheus.GaugeValue, float64(protected[v1.PodQOSBurstable]))
}

// resizeCensus counts the pods that are being resized, when it is asked for.
type resizeCensus struct{ ledger *ledger }

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
	c.ledger.mu.Lock()
	for _, h := range c.ledger.held {
		if h.Pending != nil {
			pending[strings.ToLower(h.Pending.Reason)]++
		}
		if h.Allocation > h.Settled {
			progress++
		}
	}
	c.ledger.mu.Unlock()
	for reason, n := range pending {
		to <- prometheus.MustNewConstMetric(pendingResizesDesc, prometheus.GaugeValue, n, reason)
	}
	to <- prometheus.MustNewConstMetric(progressResizesDesc, prometheus.GaugeValue, progress)
}
