// SPDX-License-Identifier: Apache-2.0

package stats

import (
	dto "github.com/prometheus/client_model/go"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// row is one cgroup of /metrics/cadvisor.
type row struct {
	*resourcev1.CgroupUsage
	labels  []*dto.LabelPair
	created float64 // Unix seconds
	network []*resourcev1.NetworkInterface
	disks   []*resourcev1.Disk // of the root
}

// metric is one family, and how a row is added to it.
type metric struct {
	name, help string
	kind       dto.MetricType
	tell       func(*row, *dto.MetricFamily)
}

func (r *row) add(f *dto.MetricFamily, value float64) { add(f, value, r.GetTime(), r.labels) }

// of makes a metric of one part of a reading, of rows that have that part.
func of[P interface {
	comparable
	*T
}, T any](part func(*resourcev1.CgroupUsage) P, name, help string, kind dto.MetricType, value func(P) float64) metric {
	return metric{"container_" + name, help, kind, func(r *row, f *dto.MetricFamily) {
		if p := part(r.CgroupUsage); p != nil {
			r.add(f, value(p))
		}
	}}
}

// plain turns a getter of a number into one of a value.
func plain[P any](get func(P) uint64) func(P) float64 {
	return func(p P) float64 { return float64(get(p)) }
}

var cpuMetrics = func() []metric {
	type usage = resourcev1.CpuUsage
	one := func(name, help string, value func(*usage) float64) metric {
		return of((*resourcev1.CgroupUsage).GetCpu, name, help, counter, value)
	}
	// cfs counts only where there is a quota.
	cfs := func(name, help string, value func(*usage) float64) metric {
		return metric{"container_cpu_cfs_" + name, help, counter, func(r *row, f *dto.MetricFamily) {
			if c := r.GetCpu(); c.GetQuota() != 0 {
				r.add(f, value(c))
			}
		}}
	}
	time := func(get func(*usage) uint64) func(*usage) float64 {
		return func(c *usage) float64 { return seconds(get(c)) }
	}
	total := metric{"container_cpu_usage_seconds_total", "CPU time used, in core-seconds.", counter, func(r *row, f *dto.MetricFamily) {
		if n := r.GetCpu().GetUsage(); n > 0 {
			add(f, seconds(n), r.GetTime(), with(r.labels, "cpu", "total"))
		}
	}}
	return append([]metric{
		cfs("burst_periods_total", "Periods in which the quota was exceeded by burst.", plain((*usage).GetBurstPeriods)),
		cfs("burst_seconds_total", "Time used beyond the quota, in seconds.", time((*usage).GetBurst)),
		cfs("periods_total", "Periods of the quota that have passed.", plain((*usage).GetPeriods)),
		cfs("throttled_periods_total", "Periods in which the quota was used up.", plain((*usage).GetThrottledPeriods)),
		cfs("throttled_seconds_total", "Time throttled, in seconds.", time((*usage).GetThrottled)),
		one("cpu_system_seconds_total", "CPU time used in the kernel, in core-seconds.", time((*usage).GetSystem)),
		total,
		one("cpu_user_seconds_total", "CPU time used in user mode, in core-seconds.", time((*usage).GetUser)),
	}, stallMetrics("cpu", func(c *resourcev1.CgroupUsage) *resourcev1.Stalls { return c.GetCpu().GetPressure() })...)
}()

// stallMetrics are a resource's pressure, where the kernel has it.
func stallMetrics(resource string, part func(*resourcev1.CgroupUsage) *resourcev1.Stalls) []metric {
	micro := func(s *resourcev1.Stall) float64 { return float64(s.GetTotal()) / 1e6 }
	return []metric{
		of(part, "pressure_"+resource+"_stalled_seconds_total", "Time in which no task could go on for want of "+resource+", in seconds.", counter,
			func(s *resourcev1.Stalls) float64 { return micro(s.GetFull()) }),
		of(part, "pressure_"+resource+"_waiting_seconds_total", "Time in which a task had to wait for "+resource+", in seconds.", counter,
			func(s *resourcev1.Stalls) float64 { return micro(s.GetSome()) }),
	}
}

var memoryMetrics = func() []metric {
	type usage = resourcev1.MemoryUsage
	one := func(name, help string, kind dto.MetricType, get func(*usage) uint64) metric {
		return of((*resourcev1.CgroupUsage).GetMemory, name, help, kind, plain(get))
	}
	failures := metric{"container_memory_failures_total", "Page faults by kind.", counter, func(r *row, f *dto.MetricFamily) {
		m := r.GetMemory()
		if m == nil {
			return
		}
		for _, scope := range []string{"container", "hierarchy"} { // counted together
			add(f, float64(m.GetPageFaults()), r.GetTime(), with(r.labels, "failure_type", "pgfault", "scope", scope))
			add(f, float64(m.GetMajorPageFaults()), r.GetTime(), with(r.labels, "failure_type", "pgmajfault", "scope", scope))
		}
	}}
	return append([]metric{
		one("memory_cache", "Bytes of page cache.", gauge, (*usage).GetCache),
		one("memory_failcnt", "Times the limit was hit.", counter, (*usage).GetFailures),
		failures,
		one("memory_kernel_usage", "Bytes of kernel memory.", gauge, (*usage).GetKernel),
		one("memory_mapped_file", "Bytes of mapped files.", gauge, (*usage).GetMappedFile),
		one("memory_max_usage_bytes", "Most bytes ever used.", gauge, (*usage).GetMaxUsage),
		one("memory_rss", "Bytes of anonymous memory.", gauge, (*usage).GetRss),
		one("memory_swap", "Bytes of swap.", gauge, (*usage).GetSwap),
		one("memory_total_active_file_bytes", "Bytes of file pages used lately.", gauge, (*usage).GetActiveFile),
		one("memory_total_inactive_file_bytes", "Bytes of file pages not used lately.", gauge, (*usage).GetInactiveFile),
		one("memory_usage_bytes", "Bytes used, whatever for.", gauge, (*usage).GetUsage),
		one("memory_working_set_bytes", "Bytes that cannot be taken back without swapping.", gauge, (*usage).GetWorkingSet),
		one("oom_events_total", "Processes killed for want of memory.", counter, (*usage).GetOomKills),
	}, append(
		stallMetrics("memory", func(c *resourcev1.CgroupUsage) *resourcev1.Stalls { return c.GetMemory().GetPressure() }),
		stallMetrics("io", (*resourcev1.CgroupUsage).GetIoPressure)...)...)
}()

var processMetrics = func() []metric {
	type usage = resourcev1.ProcessUsage
	one := func(name, help string, get func(*usage) uint64) metric {
		return of((*resourcev1.CgroupUsage).GetProcesses, name, help, gauge, plain(get))
	}
	return []metric{
		one("file_descriptors", "Open files.", (*usage).GetFileDescriptors),
		one("processes", "Processes.", (*usage).GetProcesses),
		one("threads", "Threads.", (*usage).GetThreads),
		one("threads_max", "Most threads, 0 for no bound.", (*usage).GetThreadsMax),
		{"container_ulimits_soft", "Soft limits of the first process, -1 for none.", gauge, func(r *row, f *dto.MetricFamily) {
			if p := r.GetProcesses(); p != nil && p.OpenFilesLimit != nil {
				add(f, float64(p.GetOpenFilesLimit()), r.GetTime(), with(r.labels, "ulimit", "max_open_files"))
			}
		}},
	}
}()

// specMetrics are bounds: they have no time.
var specMetrics = func() []metric {
	cpu := func(name, help string, get func(*resourcev1.CpuUsage) uint64, zero bool) metric {
		return metric{"container_spec_cpu_" + name, help, gauge, func(r *row, f *dto.MetricFamily) {
			if c := r.GetCpu(); c != nil && (zero || get(c) != 0) {
				add(f, float64(get(c)), nil, r.labels)
			}
		}}
	}
	memory := func(name, help string, get func(*resourcev1.MemoryUsage) uint64) metric {
		return metric{"container_spec_memory_" + name + "_bytes", help + " 0 for none.", gauge, func(r *row, f *dto.MetricFamily) {
			if m := r.GetMemory(); m != nil {
				add(f, float64(get(m)), nil, r.labels)
			}
		}}
	}
	return []metric{
		cpu("period", "Period of the CPU quota in microseconds.", (*resourcev1.CpuUsage).GetPeriod, true),
		cpu("quota", "CPU quota in microseconds a period.", (*resourcev1.CpuUsage).GetQuota, false),
		cpu("shares", "CPU shares.", (*resourcev1.CpuUsage).GetShares, true),
		memory("limit", "Memory limit in bytes.", (*resourcev1.MemoryUsage).GetLimit),
		memory("reservation_limit", "Memory reservation in bytes.", (*resourcev1.MemoryUsage).GetReservation),
		memory("swap_limit", "Swap limit in bytes.", (*resourcev1.MemoryUsage).GetSwapLimit),
	}
}()
