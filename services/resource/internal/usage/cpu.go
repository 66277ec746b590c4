// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// userHZ is the unit of times in cpuacct.stat and /proc/stat: Linux shows
// hundredths of a second to everybody (USER_HZ).
const userHZ = 100

const nanosPerTick = 1e9 / userHZ

func cpu1(src Source) *resourcev1.CpuUsage {
	total, ok := number(src, "cpuacct", "cpuacct.usage")
	if !ok {
		return nil
	}
	c := &resourcev1.CpuUsage{
		Usage: total, Shares: value(src, "cpu", "cpu.shares"), Period: value(src, "cpu", "cpu.cfs_period_us"),
		// No bound is -1, which is no number here.
		Quota: value(src, "cpu", "cpu.cfs_quota_us"),
	}
	// Nanoseconds where the kernel has them, else ticks.
	if user, ok := number(src, "cpuacct", "cpuacct.usage_user"); ok {
		c.User, c.System = user, value(src, "cpuacct", "cpuacct.usage_sys")
	} else if text, ok := src.Read("cpuacct", "cpuacct.stat"); ok {
		pairs(text, func(name []byte, n uint64) {
			switch string(name) {
			case "user":
				c.User = n * nanosPerTick
			case "system":
				c.System = n * nanosPerTick
			}
		})
	}
	if text, ok := src.Read("cpu", "cpu.stat"); ok {
		pairs(text, func(name []byte, n uint64) {
			switch string(name) {
			case "nr_periods":
				c.Periods = n
			case "nr_throttled":
				c.ThrottledPeriods = n
			case "throttled_time":
				c.Throttled = n
			case "nr_bursts":
				c.BurstPeriods = n
			case "burst_time":
				c.Burst = n
			}
		})
	}
	return c
}

func cpu2(src Source) *resourcev1.CpuUsage {
	text, ok := src.Read("cpu", "cpu.stat")
	if !ok {
		return nil
	}
	c := &resourcev1.CpuUsage{}
	pairs(text, func(name []byte, n uint64) {
		switch string(name) {
		case "usage_usec":
			c.Usage = n * 1000
		case "user_usec":
			c.User = n * 1000
		case "system_usec":
			c.System = n * 1000
		case "nr_periods":
			c.Periods = n
		case "nr_throttled":
			c.ThrottledPeriods = n
		case "throttled_usec":
			c.Throttled = n * 1000
		case "nr_bursts":
			c.BurstPeriods = n
		case "burst_usec":
			c.Burst = n * 1000
		}
	})
	if weight, ok := number(src, "cpu", "cpu.weight"); ok {
		c.Shares = sharesOf(weight)
	}
	if text, ok := src.Read("cpu", "cpu.max"); ok {
		quota, period, _ := bytes.Cut(bytes.TrimSpace(text), []byte(" "))
		c.Period, _ = parse(period)
		if string(quota) != "max" {
			c.Quota, _ = parse(quota)
		}
	}
	c.Pressure = pressure(src, "cpu.pressure")
	return c
}

// sharesOf is a version 2 weight in version 1's words, the linear mapping that
// cAdvisor reports.
func sharesOf(weight uint64) uint64 {
	if weight < 1 || weight > 10000 {
		return 0
	}
	return 2 + (weight-1)*262142/9999
}

// ParseNodeCPU reads the first line of /proc/stat, for a root cgroup without
// accounting of its own: what was neither idle nor waiting.
func ParseNodeCPU(text []byte) (*resourcev1.CpuUsage, bool) {
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 8 || string(fields[0]) != "cpu" {
			continue
		}
		// user nice system idle iowait irq softirq: proc_stat(5)
		var n [8]uint64
		for i := 1; i < len(n); i++ {
			n[i], _ = parse(fields[i])
		}
		c := &resourcev1.CpuUsage{User: (n[1] + n[2]) * nanosPerTick, System: (n[3] + n[6] + n[7]) * nanosPerTick}
		c.Usage = c.User + c.System
		return c, true
	}
	return nil, false
}
