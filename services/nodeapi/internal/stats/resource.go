// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"iter"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

const (
	gauge   = dto.MetricType_GAUGE
	counter = dto.MetricType_COUNTER
)

// Resource is /metrics/resource, which metrics-server reads. failed: something is missing.
func Resource(in *Input, failed bool) iter.Seq[*dto.MetricFamily] {
	var all []*dto.MetricFamily
	one := func(name, help string, kind dto.MetricType) *dto.MetricFamily {
		all = append(all, family(name, help, kind))
		return all[len(all)-1]
	}
	var (
		containerCPU     = one("container_cpu_usage_seconds_total", "[STABLE] CPU time the container used, in core-seconds.", counter)
		containerMemory  = one("container_memory_working_set_bytes", "[STABLE] Working set of the container in bytes.", gauge)
		containerStart   = one("container_start_time_seconds", "[STABLE] When the container was started, in Unix seconds.", gauge)
		containerSwapMax = one("container_swap_limit_bytes", "[ALPHA] Most swap the container may use, in bytes.", gauge)
		containerSwap    = one("container_swap_usage_bytes", "[ALPHA] Swap the container uses, in bytes.", gauge)
		nodeCPU          = one("node_cpu_usage_seconds_total", "[STABLE] CPU time the node used, in core-seconds.", counter)
		nodeMemory       = one("node_memory_working_set_bytes", "[STABLE] Working set of the node in bytes.", gauge)
		nodeSwap         = one("node_swap_usage_bytes", "[ALPHA] Swap the node uses, in bytes.", gauge)
		podCPU           = one("pod_cpu_usage_seconds_total", "[STABLE] CPU time the pod used, in core-seconds.", counter)
		podMemory        = one("pod_memory_working_set_bytes", "[STABLE] Working set of the pod in bytes.", gauge)
		podSwap          = one("pod_swap_usage_bytes", "[ALPHA] Swap the pod uses, in bytes.", gauge)
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
	return slices.Values(nonEmpty(append(all, scrapeError("resource_scrape_error", failed))))
}

func seconds(nanoseconds uint64) float64 { return float64(nanoseconds) / float64(time.Second) }

// family collects the series of one name. There is no registry: with tens of thousands of
// series its checks cost more than all else.
func family(name, help string, kind dto.MetricType) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
}

// add adds a series. Labels are shared, never changed.
func add(f *dto.MetricFamily, value float64, time *timestamppb.Timestamp, labels []*dto.LabelPair) {
	m := &dto.Metric{Label: labels}
	if time != nil {
		m.TimestampMs = new(time.GetSeconds()*1000 + int64(time.GetNanos())/1e6)
	}
	if f.GetType() == dto.MetricType_COUNTER {
		m.Counter = &dto.Counter{Value: &value}
	} else {
		m.Gauge = &dto.Gauge{Value: &value}
	}
	f.Metric = append(f.Metric, m)
}

// labels of name and value in turn.
func labels(pairs ...string) []*dto.LabelPair {
	all := make([]*dto.LabelPair, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		all = append(all, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
	}
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

// with adds labels to those of a row.
func with(base []*dto.LabelPair, pairs ...string) []*dto.LabelPair {
	all := append(slices.Clip(slices.Clone(base)), labels(pairs...)...)
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

// scrapeError is 1 if something could not be read.
func scrapeError(name string, failed bool) *dto.MetricFamily {
	f := family(name, "1 if something could not be read, 0 otherwise.", dto.MetricType_GAUGE)
	value := 0.0
	if failed {
		value = 1
	}
	add(f, value, nil, nil)
	return f
}

// nonEmpty drops families without series.
func nonEmpty(all []*dto.MetricFamily) []*dto.MetricFamily {
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 })
}
