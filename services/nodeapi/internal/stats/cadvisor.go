// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"iter"
	"maps"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// rows are the root, the system's cgroups, and each pod's with its containers.
func (in *Input) rows() []row {
	var all []row
	add := func(c *resourcev1.CgroupUsage, created int64, name, image, pod, namespace, container string) *row {
		if created <= 0 {
			created = c.GetCreated().GetSeconds()
		}
		all = append(all, row{CgroupUsage: c, created: float64(created), labels: labels(
			"container", container, "id", c.GetPath(), "image", image, "name", name, "namespace", namespace, "pod", pod)})
		return &all[len(all)-1]
	}
	if root := in.Usage.GetNode().GetCgroup(); root != nil {
		r := add(root, in.Usage.GetNode().GetBootTime().GetSeconds(), "", "", "", "", "")
		r.network, r.disks = in.Usage.GetNode().GetNetwork(), in.Usage.GetNode().GetDisks()
	}
	for _, c := range in.Usage.GetSystem() {
		add(c, 0, "", "", "", "", "")
	}
	for _, p := range in.pods() {
		if p.usage == nil {
			continue
		}
		r := add(p.usage.GetCgroup(), p.Created.Unix(), "", "", p.Name, p.Namespace, "")
		if len(p.sandboxes) == 0 { // a runtime that needs none
			r.network = p.usage.GetNetwork()
		}
		for i, c := range p.sandboxes {
			r := add(c.usage, c.Created.Unix(), c.ID, c.Image, p.Name, p.Namespace, c.Name)
			if i == 0 {
				r.network = p.usage.GetNetwork()
			}
		}
		for _, c := range p.containers {
			if c.usage != nil {
				add(c.usage, c.Created.Unix(), c.ID, c.Image, p.Name, p.Namespace, c.Name)
			}
		}
	}
	return all
}

// CAdvisor is /metrics/cadvisor, by the names, types and labels of cAdvisor 0.56 as the
// kubelet sets it up. Each family is made when it is asked for: together they are large.
// failed: something is missing.
func CAdvisor(in *Input, failed bool) iter.Seq[*dto.MetricFamily] {
	return func(yield func(*dto.MetricFamily) bool) {
		for _, f := range nonEmpty(machine(in)) {
			if !yield(f) {
				return
			}
		}
		rows := in.rows()
		for _, m := range slices.Concat(lifeMetrics, cpuMetrics, memoryMetrics, diskMetrics, networkMetrics, processMetrics, specMetrics) {
			f := family(m.name, m.help, m.kind)
			for i := range rows {
				m.tell(&rows[i], f)
			}
			if len(f.GetMetric()) > 0 && !yield(f) {
				return
			}
		}
		yield(scrapeError("container_scrape_error", failed))
	}
}

// machine are the families of the machine.
func machine(in *Input) []*dto.MetricFamily {
	m := in.Usage.GetMachine()
	if m == nil {
		return []*dto.MetricFamily{scrapeError("machine_scrape_error", true)}
	}
	version := family("cadvisor_version_info", "1, with the versions of what measures as labels.", gauge)
	add(version, 1, nil, labels("cadvisorRevision", "", "cadvisorVersion", "", "dockerVersion", "", "kernelVersion", m.GetKernelVersion(), "osVersion", m.GetOsImage()))
	ids := labels("boot_id", m.GetBootId(), "machine_id", m.GetMachineId(), "system_uuid", m.GetSystemUuid())
	one := func(name, help string, value uint64) *dto.MetricFamily {
		f := family("machine_"+name, help, gauge)
		add(f, float64(value), nil, ids)
		return f
	}
	// Non-volatile memory needs a library that the kubelet is built without, too.
	nvm := family("machine_nvm_capacity", "Bytes of non-volatile memory by mode; not measured.", gauge)
	for _, mode := range []string{"app_direct_mode", "memory_mode"} {
		add(nvm, 0, nil, with(ids, "mode", mode))
	}
	return []*dto.MetricFamily{
		version,
		one("cpu_books", "Number of CPU books, on s390x.", 0),
		one("cpu_cores", "Number of logical CPU cores.", m.GetCores()),
		one("cpu_drawers", "Number of CPU drawers, on s390x.", 0),
		one("cpu_physical_cores", "Number of physical CPU cores.", m.GetPhysicalCores()),
		one("cpu_sockets", "Number of CPU sockets.", m.GetSockets()),
		one("memory_bytes", "Bytes of memory.", m.GetMemory()),
		one("nvm_avg_power_budget_watts", "Power budget of non-volatile memory; not measured.", 0),
		nvm,
		scrapeError("machine_scrape_error", false),
		one("swap_bytes", "Bytes of swap.", m.GetSwap()),
	}
}

var lifeMetrics = []metric{
	{"container_last_seen", "When the container was last seen, in Unix seconds.", gauge, func(r *row, f *dto.MetricFamily) { r.add(f, float64(r.GetTime().GetSeconds())) }},
	{"container_health_state", "Result of the container's health check: -1 for none, which is all a CRI runtime has.", gauge, func(r *row, f *dto.MetricFamily) { r.add(f, -1) }},
	{"container_start_time_seconds", "When the container was made, in Unix seconds.", gauge, func(r *row, f *dto.MetricFamily) { add(f, r.created, nil, r.labels) }},
}

var networkMetrics = func() []metric {
	one := func(name, help string, get func(*resourcev1.NetworkInterface) uint64) metric {
		return metric{"container_network_" + name + "_total", help, counter, func(r *row, f *dto.MetricFamily) {
			for _, i := range r.network {
				add(f, float64(get(i)), r.GetTime(), with(r.labels, "interface", i.GetName()))
			}
		}}
	}
	return []metric{
		one("receive_bytes", "Bytes received.", (*resourcev1.NetworkInterface).GetRxBytes),
		one("receive_errors", "Errors while receiving.", (*resourcev1.NetworkInterface).GetRxErrors),
		one("receive_packets_dropped", "Packets dropped while receiving.", (*resourcev1.NetworkInterface).GetRxDropped),
		one("receive_packets", "Packets received.", (*resourcev1.NetworkInterface).GetRxPackets),
		one("transmit_bytes", "Bytes sent.", (*resourcev1.NetworkInterface).GetTxBytes),
		one("transmit_errors", "Errors while sending.", (*resourcev1.NetworkInterface).GetTxErrors),
		one("transmit_packets_dropped", "Packets dropped while sending.", (*resourcev1.NetworkInterface).GetTxDropped),
		one("transmit_packets", "Packets sent.", (*resourcev1.NetworkInterface).GetTxPackets),
	}
}()

var diskMetrics = func() []metric {
	// both has of devices what the cgroup counted, and of the root's mounted disks what
	// the kernel did.
	both := func(name, help string, kind dto.MetricType, io func(*resourcev1.DeviceIO) (uint64, bool), disk func(*resourcev1.Disk) float64) metric {
		return metric{"container_fs_" + name, help, kind, func(r *row, f *dto.MetricFamily) {
			counted := map[string]bool{}
			if disk != nil {
				for _, d := range r.disks {
					counted[d.GetDevice()] = true
					add(f, disk(d), r.GetTime(), with(r.labels, "device", d.GetDevice()))
				}
			}
			if io == nil {
				return
			}
			for _, d := range r.GetIo() {
				if n, ok := io(d); ok && !counted[d.GetDevice()] {
					add(f, float64(n), r.GetTime(), with(r.labels, "device", d.GetDevice()))
				}
			}
		}}
	}
	bytes := func(operation string) func(*resourcev1.DeviceIO) (uint64, bool) {
		return func(d *resourcev1.DeviceIO) (uint64, bool) { n, ok := d.GetBytes()[operation]; return n, ok }
	}
	always := func(get func(*resourcev1.DeviceIO) uint64) func(*resourcev1.DeviceIO) (uint64, bool) {
		return func(d *resourcev1.DeviceIO) (uint64, bool) { return get(d), true }
	}
	ms := func(get func(*resourcev1.Disk) uint64) func(*resourcev1.Disk) float64 {
		return func(d *resourcev1.Disk) float64 { return float64(get(d)) / 1000 }
	}
	space := func(get func(*resourcev1.FileSystem) uint64) func(*resourcev1.Disk) float64 {
		return func(d *resourcev1.Disk) float64 { return float64(get(d.GetFileSystem())) }
	}
	return []metric{
		{"container_blkio_device_usage_total", "Bytes of block I/O by device and operation.", counter, func(r *row, f *dto.MetricFamily) {
			for _, d := range r.GetIo() {
				major, minor := strconv.FormatUint(d.GetMajor(), 10), strconv.FormatUint(d.GetMinor(), 10)
				for _, operation := range slices.Sorted(maps.Keys(d.GetBytes())) {
					add(f, float64(d.GetBytes()[operation]), r.GetTime(), with(r.labels, "device", d.GetDevice(), "major", major, "minor", minor, "operation", operation))
				}
			}
		}},
		both("inodes_free", "Inodes left.", gauge, nil, space((*resourcev1.FileSystem).GetInodesFree)),
		both("inodes_total", "Most inodes.", gauge, nil, space((*resourcev1.FileSystem).GetInodes)),
		both("io_current", "I/O in progress.", gauge, nil, plain((*resourcev1.Disk).GetInProgress)),
		both("io_time_seconds_total", "Seconds spent with I/O.", counter, nil, ms((*resourcev1.Disk).GetIoTime)),
		both("io_time_weighted_seconds_total", "Seconds spent with I/O, weighted.", counter, nil, ms((*resourcev1.Disk).GetWeightedIoTime)),
		both("limit_bytes", "Size in bytes.", gauge, nil, space((*resourcev1.FileSystem).GetCapacity)),
		both("read_seconds_total", "Seconds spent reading.", counter, nil, ms((*resourcev1.Disk).GetReadTime)),
		both("reads_bytes_total", "Bytes read.", counter, bytes("Read"), nil),
		both("reads_merged_total", "Reads merged.", counter, nil, plain((*resourcev1.Disk).GetReadsMerged)),
		both("reads_total", "Reads done.", counter, always((*resourcev1.DeviceIO).GetReads), plain((*resourcev1.Disk).GetReads)),
		both("sector_reads_total", "Sectors read.", counter, nil, plain((*resourcev1.Disk).GetSectorsRead)),
		both("sector_writes_total", "Sectors written.", counter, nil, plain((*resourcev1.Disk).GetSectorsWritten)),
		both("usage_bytes", "Bytes used.", gauge, nil, space((*resourcev1.FileSystem).GetUsed)),
		both("write_seconds_total", "Seconds spent writing.", counter, nil, ms((*resourcev1.Disk).GetWriteTime)),
		both("writes_bytes_total", "Bytes written.", counter, bytes("Write"), nil),
		both("writes_merged_total", "Writes merged.", counter, nil, plain((*resourcev1.Disk).GetWritesMerged)),
		both("writes_total", "Writes done.", counter, always((*resourcev1.DeviceIO).GetWrites), plain((*resourcev1.Disk).GetWrites)),
	}
}()
