// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/metric"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/pinning"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// pinMetrics count what becomes of pods that are to be pinned; the kubelet's names.
type pinMetrics struct {
	requests, errors           prometheus.Counter // CPUs, by container
	memory, noMemory           prometheus.Counter // memory, by container
	admissions, refusals       prometheus.Counter // topology, by pod
	duration                   prometheus.Histogram
	aligned, misaligned        *prometheus.CounterVec
	alignedCores, alignedCache prometheus.Counter
	misalignedCores            prometheus.Counter

	// From the node or from what a pod has as a whole, by resource.
	allocations, allocationErrors, assignments *prometheus.CounterVec
}

func newPinMetrics(r prometheus.Registerer) *pinMetrics {
	to := metric.In(r)
	m := &pinMetrics{
		requests:         to.Counter("kubelet_cpu_manager_pinning_requests_total", "Containers that were to have CPUs of their own."),
		errors:           to.Counter("kubelet_cpu_manager_pinning_errors_total", "Containers that could not have CPUs of their own."),
		memory:           to.Counter("kubelet_memory_manager_pinning_requests_total", "Containers that were to have memory of their own."),
		noMemory:         to.Counter("kubelet_memory_manager_pinning_errors_total", "Containers that could not have memory of their own."),
		admissions:       to.Counter("kubelet_topology_manager_admission_requests_total", "Pods that the topology manager was asked to admit."),
		refusals:         to.Counter("kubelet_topology_manager_admission_errors_total", "Pods that the topology manager refused."),
		duration:         to.Histogram("kubelet_topology_manager_admission_duration_ms", "Duration of an admission by the topology manager, in milliseconds.", prometheus.ExponentialBuckets(.05, 2, 15)),
		aligned:          to.Counters("kubelet_container_aligned_compute_resources_count", "Containers or pods whose resources are aligned, by the boundary.", "scope", "boundary"),
		misaligned:       to.Counters("kubelet_container_aligned_compute_resources_failure_count", "Containers or pods whose resources could not be aligned, by the boundary.", "scope", "boundary"),
		allocations:      to.Counters("resource_manager_allocations_total", "Allocations of CPUs and memory, from the node or from a pod's own.", "resource_name", "source"),
		allocationErrors: to.Counters("resource_manager_allocation_errors_total", "Allocations of CPUs and memory that failed.", "resource_name", "source"),
		assignments:      to.Counters("resource_manager_container_assignments", "Containers by what they have: of the node or the pod, for themselves or shared.", "resource_name", "assignment_type"),
	}
	m.alignedCores, m.alignedCache = m.aligned.WithLabelValues("container", "physical_cpu"), m.aligned.WithLabelValues("container", "uncore_cache")
	m.misalignedCores = m.misaligned.WithLabelValues("container", "physical_cpu")
	return m
}

// pools counts what a kubelet counts with the gate PodLevelResourceManagers.
func (m *pinMetrics) pools(all map[v1.ResourceName]topology.Counts) {
	for name, c := range all {
		for _, one := range []struct {
			of    *prometheus.CounterVec
			label string
			n     int
		}{
			{m.allocations, "node", c.Node},
			{m.allocations, "pod", c.Pod},
			{m.allocationErrors, "node", c.NodeErrors},
			{m.allocationErrors, "pod", c.PodErrors},
			{m.assignments, "node_exclusive", c.Exclusive},
			{m.assignments, "pod_exclusive", c.PodExclusive},
			{m.assignments, "pod_shared", c.PodShared},
		} {
			if one.n > 0 {
				one.of.WithLabelValues(string(name), one.label).Add(float64(one.n))
			}
		}
	}
}

// count counts what came of a choice.
func (m *pinMetrics) count(tally pinning.Tally, took time.Duration) {
	m.admissions.Inc()
	m.duration.Observe(float64(took.Milliseconds()))
	if tally.Scope != "" && tally.Refused {
		m.refusals.Inc()
	}
	if tally.Scope != "" {
		m.aligned.WithLabelValues(tally.Scope, "numa_node").Add(float64(tally.Aligned))
		m.misaligned.WithLabelValues(tally.Scope, "numa_node").Add(float64(tally.Misaligned))
	}
	m.requests.Add(float64(tally.CPUs.Requests))
	m.errors.Add(float64(tally.CPUs.Errors))
	m.memory.Add(float64(tally.Memory.Requests))
	m.noMemory.Add(float64(tally.Memory.Errors))
	m.alignedCores.Add(float64(tally.CPUs.Cores))
	m.misalignedCores.Add(float64(tally.CPUs.NoCores))
	m.alignedCache.Add(float64(tally.CPUs.Caches))
	m.pools(tally.Pools)
}

// pinner has the policies choose devices, CPUs and memory.
type pinner struct {
	pins    *pinning.Policies
	devices *podDevices
	now     func() time.Time

	// chose: the policies have chosen for a pod that does not run; it took this long.
	chose bool
	tally pinning.Tally
	took  time.Duration
}

// Choose implements allocate.Allocator.
func (p *pinner) Choose(r allocate.Request) (answer allocate.Answer) {
	if r.Running {
		p.devices.keep(r.Pod.UID, r.Chosen)
		answer, _ := p.pins.Decide(r, nil)
		return answer
	}
	choice := p.devices.decided(r)
	if w := choice.Waits(r.Pod); w != nil {
		return allocate.Answer{Decision: resourcev1.Decision_DECISION_NOT_YET, Message: w.String()}
	}
	began := p.now()
	answer, p.tally = p.pins.Decide(r, choice)
	p.chose, p.took = true, p.now().Sub(began)
	return answer
}

// pinCensus counts the CPUs that pods have, when it is asked for.
type pinCensus struct {
	ledger *ledger
	node   *node
}

var (
	sharedPoolDesc = prometheus.NewDesc("kubelet_cpu_manager_shared_pool_size_millicores",
		"CPUs that containers share and that are not reserved, in thousandths.", nil, nil)
	exclusiveDesc = prometheus.NewDesc("kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs that containers have of their own.", nil, nil)
	perNUMADesc   = prometheus.NewDesc("kubelet_cpu_manager_allocation_per_numa", "CPUs that containers have of their own, by NUMA node.", []string{"numa_node"}, nil)
)

func (pinCensus) Describe(to chan<- *prometheus.Desc) {
	to <- sharedPoolDesc
	to <- exclusiveDesc
	to <- perNUMADesc
}

func (c pinCensus) Collect(to chan<- prometheus.Metric) {
	now, _ := c.node.now()
	usage := pinning.Usage{}
	if now != nil {
		c.ledger.mu.Lock()
		held := c.ledger.chosen("")
		c.ledger.mu.Unlock()
		usage = now.pins.Usage(held)
	}
	to <- prometheus.MustNewConstMetric(sharedPoolDesc, prometheus.GaugeValue, float64(usage.SharedMilli))
	to <- prometheus.MustNewConstMetric(exclusiveDesc, prometheus.GaugeValue, float64(usage.Exclusive))
	for id, n := range usage.Nodes {
		to <- prometheus.MustNewConstMetric(perNUMADesc, prometheus.GaugeValue, float64(n), strconv.Itoa(id))
	}
}
