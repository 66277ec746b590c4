package stats

import (
	"time"

	dto "github.com/prometheus/client_model/go"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

const (
	gauge   = dto.MetricType_GAUGE
	counter = dto.MetricType_COUNTER
)

// Resource is /metrics/resource: what metrics-server reads. failed says that
// something is missing.
func Resource(in *Input, failed bool) []*dto.MetricFamily {
	var (
		containerCPU     = family("container_cpu_usage_seconds_total", "[STABLE] CPU time the container used, in core-seconds.", counter)
		containerMemory  = family("container_memory_working_set_bytes", "[STABLE] Working set of the container in bytes.", gauge)
		containerStart   = family("container_start_time_seconds", "[STABLE] When the container was started, in Unix seconds.", gauge)
		containerSwapMax = family("container_swap_limit_bytes", "[ALPHA] Most swap the container may use, in bytes.", gauge)
		containerSwap    = family("container_swap_usage_bytes", "[ALPHA] Swap the container uses, in bytes.", gauge)
		nodeCPU          = family("node_cpu_usage_seconds_total", "[STABLE] CPU time the node used, in core-seconds.", counter)
		nodeMemory       = family("node_memory_working_set_bytes", "[STABLE] Working set of the node in bytes.", gauge)
		nodeSwap         = family("node_swap_usage_bytes", "[ALPHA] Swap the node uses, in bytes.", gauge)
		podCPU           = family("pod_cpu_usage_seconds_total", "[STABLE] CPU time the pod used, in core-seconds.", counter)
		podMemory        = family("pod_memory_working_set_bytes", "[STABLE] Working set of the pod in bytes.", gauge)
		podSwap          = family("pod_swap_usage_bytes", "[ALPHA] Swap the pod uses, in bytes.", gauge)
	)
	three := func(c *resourcev1.CgroupUsage, cpu, memory, swap *dto.MetricFamily, labels []*dto.LabelPair) {
		if c.GetCpu() != nil {
			add(cpu, seconds(c.GetCpu().GetUsage()), c.GetTime(), labels)
		}
		if c.GetMemory() != nil {
			add(memory, float64(c.GetMemory().GetWorkingSet()), c.GetTime(), labels)
			add(swap, float64(c.GetMemory().GetSwap()), c.GetTime(), labels)
		}
	}
	three(in.Usage.GetNode().GetCgroup(), nodeCPU, nodeMemory, nodeSwap, nil)
	for _, p := range in.busy() {
		for _, c := range p.containers {
			names := labels("container", c.Name, "namespace", p.Namespace, "pod", p.Name)
			if !c.Created.IsZero() {
				add(containerStart, float64(c.Created.UnixNano())/float64(time.Second), nil, names)
			}
			three(c.usage, containerCPU, containerMemory, containerSwap, names)
			if limit, ok := swapLimit(c.usage.GetMemory(), in.Usage.GetMachine()); ok {
				add(containerSwapMax, float64(limit), c.usage.GetTime(), names)
			}
		}
		three(p.usage.GetCgroup(), podCPU, podMemory, podSwap, labels("namespace", p.Namespace, "pod", p.Name))
	}
	return told([]*dto.MetricFamily{
		containerCPU, containerMemory, containerStart, containerSwapMax, containerSwap, nodeCPU, nodeMemory, nodeSwap,
		podCPU, podMemory, podSwap, scrapeError("resource_scrape_error", failed),
	})
}

func seconds(nanoseconds uint64) float64 { return float64(nanoseconds) / float64(time.Second) }
