// SPDX-License-Identifier: Apache-2.0

package usage

import (
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// workingSet is what cannot be taken back without swapping: usage without pages
// of files not used lately (cAdvisor's rule).
func workingSet(m *resourcev1.MemoryUsage) uint64 { return less(m.GetUsage(), m.GetInactiveFile()) }

func less(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}

func memory1(src Source) *resourcev1.MemoryUsage {
	usage, ok := number(src, "memory", "memory.usage_in_bytes")
	if !ok {
		return nil
	}
	m := &resourcev1.MemoryUsage{
		Usage: usage, MaxUsage: value(src, "memory", "memory.max_usage_in_bytes"), Failures: value(src, "memory", "memory.failcnt"),
		Kernel:      value(src, "memory", "memory.kmem.usage_in_bytes"),
		Limit:       bound(src, "memory", "memory.limit_in_bytes"),
		SwapLimit:   bound(src, "memory", "memory.memsw.limit_in_bytes"),
		Reservation: bound(src, "memory", "memory.soft_limit_in_bytes"),
	}
	if text, ok := src.Read("memory", "memory.stat"); ok {
		pairs(text, func(name []byte, n uint64) {
			// Those with total_ count the cgroups below too.
			switch string(name) {
			case "total_cache":
				m.Cache = n
			case "total_rss":
				m.Rss = n
			case "total_swap":
				m.Swap = n
			case "total_mapped_file":
				m.MappedFile = n
			case "total_active_file":
				m.ActiveFile = n
			case "total_inactive_file":
				m.InactiveFile = n
			case "total_pgfault":
				m.PageFaults = n
			case "total_pgmajfault":
				m.MajorPageFaults = n
			}
		})
	}
	if text, ok := src.Read("memory", "memory.oom_control"); ok {
		pairs(text, func(name []byte, n uint64) {
			if string(name) == "oom_kill" {
				m.OomKills = n
			}
		})
	}
	m.WorkingSet = workingSet(m)
	return m
}

func memory2(src Source) *resourcev1.MemoryUsage {
	text, ok := src.Read("memory", "memory.stat")
	if !ok {
		return nil
	}
	m := &resourcev1.MemoryUsage{}
	pairs(text, func(name []byte, n uint64) {
		switch string(name) {
		case "file":
			m.Cache = n
		case "anon":
			m.Rss = n
		case "file_mapped":
			m.MappedFile = n
		case "kernel":
			m.Kernel = n
		case "active_file":
			m.ActiveFile = n
		case "inactive_file":
			m.InactiveFile = n
		case "pgfault":
			m.PageFaults = n
		case "pgmajfault":
			m.MajorPageFaults = n
		}
	})
	m.Usage, m.MaxUsage = value(src, "memory", "memory.current"), value(src, "memory", "memory.peak")
	m.Swap = value(src, "memory", "memory.swap.current")
	m.Limit, m.SwapLimit, m.Reservation = bound(src, "memory", "memory.max"), bound(src, "memory", "memory.swap.max"), bound(src, "memory", "memory.min")
	if text, ok := src.Read("memory", "memory.events"); ok {
		pairs(text, func(name []byte, n uint64) {
			switch string(name) {
			case "max":
				m.Failures = n
			case "oom_kill":
				m.OomKills = n
			}
		})
	}
	m.WorkingSet = workingSet(m)
	m.Pressure = pressure(src, "memory.pressure")
	return m
}

// Root completes the reading of the root cgroup from /proc/meminfo, in bytes:
// version 2 accounts no usage there but what is anonymous and of files, which is taken
// for it as cAdvisor does, and the machine's memory is its limit.
func Root(m *resourcev1.MemoryUsage, meminfo map[string]int64) *resourcev1.MemoryUsage {
	if m == nil {
		m = &resourcev1.MemoryUsage{Cache: uint64(meminfo["Cached"]), InactiveFile: uint64(meminfo["Inactive(file)"]), ActiveFile: uint64(meminfo["Active(file)"]), Rss: uint64(meminfo["AnonPages"])}
	}
	total, swap := uint64(meminfo["MemTotal"]), uint64(meminfo["SwapTotal"])
	if m.GetUsage() == 0 {
		if m.Usage = m.GetRss() + m.GetCache(); m.GetUsage() == 0 {
			m.Usage = less(total, uint64(meminfo["MemFree"]))
		}
		m.Swap = less(swap, uint64(meminfo["SwapFree"]))
		m.WorkingSet = workingSet(m)
	}
	m.Limit, m.SwapLimit = &total, &swap
	return m
}
