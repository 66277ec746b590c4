// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sextant-node/sextant/pkg/wire"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// defaultInterface is the one whose counters stand for the whole, as in the kubelet.
const defaultInterface = "eth0"

// Summary is GET /stats/summary. With cpuAndMemory it holds names, start times,
// CPU, memory and swap alone.
func Summary(in *Input, cpuAndMemory bool) *statsv1alpha1.Summary {
	s := &statsv1alpha1.Summary{Node: node(in, cpuAndMemory), Pods: []statsv1alpha1.PodStats{}}
	volumes := map[string][]*volumev1.VolumeStats{}
	for _, v := range in.Volumes {
		volumes[v.GetUid()] = append(volumes[v.GetUid()], v)
	}
	files := map[string]*resourcev1.PodFiles{}
	for _, f := range in.Usage.GetDisk().GetPods() {
		files[f.GetUid()] = f
	}
	for _, p := range in.busy() {
		stats := cpuAndMemoryOf(in, p)
		if !cpuAndMemory {
			stats.Network = network(p.usage.GetCgroup().GetTime(), p.usage.GetNetwork())
			stats.IO = ioOf(p.usage.GetCgroup())
			storage(in, p, &stats, volumes[p.UID], files[p.UID])
		}
		s.Pods = append(s.Pods, stats)
	}
	return s
}

func node(in *Input, cpuAndMemory bool) statsv1alpha1.NodeStats {
	u := in.Usage.GetNode()
	n := statsv1alpha1.NodeStats{
		NodeName: in.NodeName, StartTime: at(u.GetBootTime()),
		CPU: cpu(u.GetCgroup()), Memory: memory(u.GetCgroup()), Swap: swap(u.GetCgroup(), nil),
	}
	for _, c := range in.Usage.GetSystem() {
		if c.GetName() == "" {
			continue
		}
		stats := statsv1alpha1.ContainerStats{Name: c.GetName(), StartTime: at(c.GetCreated()), CPU: cpu(c), Memory: memory(c), Swap: swap(c, nil)}
		if !cpuAndMemory {
			stats.IO = ioOf(c)
		}
		n.SystemContainers = append(n.SystemContainers, stats)
	}
	if cpuAndMemory || u == nil {
		return n
	}
	n.IO = ioOf(u.GetCgroup())
	n.Network = network(u.GetCgroup().GetTime(), u.GetNetwork())
	if most, all := u.GetMaxPids(), u.GetProcesses(); most > 0 {
		n.Rlimit = &statsv1alpha1.RlimitStats{Time: at(u.GetCgroup().GetTime()), MaxPID: &most, NumOfRunningProcesses: &all}
	}
	if disk := in.Usage.GetDisk(); disk != nil {
		n.Fs = fs(disk.GetTime(), disk.GetNode())
		n.Runtime = &statsv1alpha1.RuntimeStats{ImageFs: fs(disk.GetTime(), disk.GetImage()), ContainerFs: fs(disk.GetTime(), disk.GetContainer())}
	}
	return n
}

func cpuAndMemoryOf(in *Input, p pod) statsv1alpha1.PodStats {
	stats := statsv1alpha1.PodStats{
		PodRef:    statsv1alpha1.PodReference{Name: p.Name, Namespace: p.Namespace, UID: p.UID},
		StartTime: metav1.NewTime(p.Created), Containers: []statsv1alpha1.ContainerStats{},
		CPU: cpu(p.usage.GetCgroup()), Memory: memory(p.usage.GetCgroup()), Swap: swap(p.usage.GetCgroup(), nil),
	}
	for _, c := range p.containers {
		stats.Containers = append(stats.Containers, statsv1alpha1.ContainerStats{
			Name: c.Name, StartTime: metav1.NewTime(c.Created), CPU: cpu(c.usage), Memory: memory(c.usage), Swap: swap(c.usage, in.Usage.GetMachine()),
		})
	}
	return stats
}

// storage adds what a pod has on disks, its processes, and its containers' I/O.
func storage(in *Input, p pod, stats *statsv1alpha1.PodStats, volumes []*volumev1.VolumeStats, files *resourcev1.PodFiles) {
	disk := in.Usage.GetDisk()
	sum := ephemeral{node: disk.GetNode(), time: disk.GetTime()}
	logs := map[string]*resourcev1.ContainerLogs{}
	for _, l := range files.GetLogs() {
		logs[l.GetContainer()] = l
	}
	var processes uint64
	for i, c := range p.containers {
		to := &stats.Containers[i]
		to.IO = ioOf(c.usage)
		processes += c.usage.GetProcesses().GetProcesses()
		if layer, ok := in.Layers[c.ID]; ok {
			to.Rootfs = layerOf(layer, disk)
			sum.add(layer.Bytes, layer.Inodes)
		}
		if l := logs[c.Name]; l != nil && disk.GetNode() != nil {
			to.Logs = fs(disk.GetTime(), disk.GetNode())
			to.Logs.UsedBytes, to.Logs.InodesUsed = new(l.GetBytes()), new(l.GetInodes())
			sum.add(to.Logs.UsedBytes, to.Logs.InodesUsed)
		}
	}
	for _, c := range p.sandboxes {
		processes += c.usage.GetProcesses().GetProcesses()
	}
	if p.usage != nil {
		stats.ProcessStats = &statsv1alpha1.ProcessStats{ProcessCount: &processes}
	}
	for _, v := range volumes {
		volume := statsv1alpha1.VolumeStats{Name: v.GetName(), FsStats: statsv1alpha1.FsStats{
			Time: at(v.GetTime()), AvailableBytes: new(v.GetAvailable()), CapacityBytes: new(v.GetCapacity()), UsedBytes: new(v.GetUsed()),
			InodesFree: new(v.GetInodesFree()), Inodes: new(v.GetInodes()), InodesUsed: new(v.GetInodesUsed()),
		}}
		if v.GetClaim() != "" {
			volume.PVCRef = &statsv1alpha1.PVCReference{Name: v.GetClaim(), Namespace: v.GetClaimNamespace()}
		}
		if v.Abnormal != nil {
			volume.VolumeHealthStats = &statsv1alpha1.VolumeHealthStats{Abnormal: v.GetAbnormal()}
		}
		stats.VolumeStats = append(stats.VolumeStats, volume)
		if v.GetEphemeral() {
			sum.add(volume.UsedBytes, volume.InodesUsed)
		}
	}
	if files != nil {
		sum.add(new(files.GetOtherBytes()), new(files.GetOtherInodes()))
	}
	stats.EphemeralStorage = sum.stats()
}

// ephemeral adds up a pod's local ephemeral storage, all of it on the node's disk.
type ephemeral struct {
	node          *resourcev1.FileSystem
	time          *timestamppb.Timestamp
	bytes, inodes uint64
	any           bool
}

func (e *ephemeral) add(bytes, inodes *uint64) {
	if bytes != nil {
		e.bytes, e.any = e.bytes+*bytes, true
	}
	if inodes != nil {
		e.inodes += *inodes
	}
}

func (e *ephemeral) stats() *statsv1alpha1.FsStats {
	if !e.any || e.node == nil {
		return nil
	}
	stats := fs(e.time, e.node)
	stats.UsedBytes, stats.InodesUsed = &e.bytes, &e.inodes
	return stats
}

func layerOf(layer Layer, disk *resourcev1.DiskUsage) *statsv1alpha1.FsStats {
	stats := &statsv1alpha1.FsStats{}
	if at := slices.IndexFunc(disk.GetRuntime(), func(f *resourcev1.FileSystem) bool { return f.GetMountpoint() == layer.Mountpoint }); at >= 0 {
		stats = fs(nil, disk.GetRuntime()[at])
	}
	stats.Time, stats.UsedBytes, stats.InodesUsed = metav1.NewTime(layer.Time), layer.Bytes, layer.Inodes
	return stats
}

func fs(time *timestamppb.Timestamp, f *resourcev1.FileSystem) *statsv1alpha1.FsStats {
	if f == nil {
		return nil
	}
	return &statsv1alpha1.FsStats{
		Time: at(time), AvailableBytes: new(f.GetAvailable()), CapacityBytes: new(f.GetCapacity()), UsedBytes: new(f.GetUsed()),
		InodesFree: new(f.GetInodesFree()), Inodes: new(f.GetInodes()), InodesUsed: new(f.GetInodesUsed()),
	}
}

func cpu(c *resourcev1.CgroupUsage) *statsv1alpha1.CPUStats {
	if c.GetCpu() == nil {
		return nil
	}
	return &statsv1alpha1.CPUStats{
		Time: at(c.GetTime()), UsageNanoCores: c.Cpu.UsageNanoCores, UsageCoreNanoSeconds: new(c.GetCpu().GetUsage()),
		PSI: stalls(c.GetCpu().GetPressure()),
	}
}

func memory(c *resourcev1.CgroupUsage) *statsv1alpha1.MemoryStats {
	m := c.GetMemory()
	if m == nil {
		return nil
	}
	stats := &statsv1alpha1.MemoryStats{
		Time: at(c.GetTime()), UsageBytes: new(m.GetUsage()), WorkingSetBytes: new(m.GetWorkingSet()), RSSBytes: new(m.GetRss()),
		PageFaults: new(m.GetPageFaults()), MajorPageFaults: new(m.GetMajorPageFaults()), PSI: stalls(m.GetPressure()),
	}
	if m.Limit != nil {
		stats.AvailableBytes = new(less(m.GetLimit(), m.GetWorkingSet()))
	}
	return stats
}

// swap is that of a cgroup, of a container within the machine's.
func swap(c *resourcev1.CgroupUsage, m *resourcev1.Machine) *statsv1alpha1.SwapStats {
	usage := c.GetMemory()
	if usage == nil {
		return nil
	}
	stats := &statsv1alpha1.SwapStats{Time: at(c.GetTime()), SwapUsageBytes: new(usage.GetSwap())}
	if limit, ok := swapLimit(usage, m); ok {
		stats.SwapAvailableBytes = new(less(limit, usage.GetSwap()))
	} else if usage.SwapLimit != nil {
		stats.SwapAvailableBytes = new(less(usage.GetSwapLimit(), usage.GetSwap()))
	}
	return stats
}

func ioOf(c *resourcev1.CgroupUsage) *statsv1alpha1.IOStats {
	if c == nil {
		return nil
	}
	return &statsv1alpha1.IOStats{Time: at(c.GetTime()), PSI: stalls(c.GetIoPressure())}
}

// stalls are zeros where the kernel has no pressure information of cgroups, as a kubelet's.
func stalls(s *resourcev1.Stalls) *statsv1alpha1.PSIStats {
	data := func(s *resourcev1.Stall) statsv1alpha1.PSIData {
		return statsv1alpha1.PSIData{Total: s.GetTotal(), Avg10: s.GetAvg10(), Avg60: s.GetAvg60(), Avg300: s.GetAvg300()}
	}
	return &statsv1alpha1.PSIStats{Full: data(s.GetFull()), Some: data(s.GetSome())}
}

func network(time *timestamppb.Timestamp, all []*resourcev1.NetworkInterface) *statsv1alpha1.NetworkStats {
	if len(all) == 0 {
		return nil
	}
	stats := &statsv1alpha1.NetworkStats{Time: at(time)}
	for _, i := range all {
		one := statsv1alpha1.InterfaceStats{
			Name: i.GetName(), RxBytes: new(i.GetRxBytes()), RxErrors: new(i.GetRxErrors()),
			TxBytes: new(i.GetTxBytes()), TxErrors: new(i.GetTxErrors()),
		}
		if i.GetName() == defaultInterface {
			stats.InterfaceStats = one
		}
		stats.Interfaces = append(stats.Interfaces, one)
	}
	return stats
}

func less(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}

func at(t *timestamppb.Timestamp) metav1.Time { return metav1.NewTime(wire.TimeOf(t)) }
