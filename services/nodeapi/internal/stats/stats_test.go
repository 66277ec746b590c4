// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/ptr"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/stats"
)

var update = flag.Bool("update", false, "write what comes out over the golden files")

var (
	start = time.Unix(1700000000, 0).UTC()
	read  = timestamppb.New(time.Unix(1700000100, 123456789))
)

// cgroup makes a reading with every part, its numbers told apart by seed.
func cgroup(path, name string, seed uint64) *resourcev1.CgroupUsage {
	stalls := func(n uint64) *resourcev1.Stalls {
		return &resourcev1.Stalls{Some: &resourcev1.Stall{Total: 2000000 * n, Avg10: .5}, Full: &resourcev1.Stall{Total: 1000000 * n}}
	}
	return &resourcev1.CgroupUsage{
		Path: path, Name: name, Time: read, Created: timestamppb.New(start),
		Cpu: &resourcev1.CpuUsage{
			Usage: seed * 1e9, User: seed * 6e8, System: seed * 4e8, UsageNanoCores: ptr.To(seed * 1e6), Shares: 512, Period: 100000,
			Pressure: stalls(seed),
		},
		Memory: &resourcev1.MemoryUsage{
			Usage: seed << 20, MaxUsage: seed << 21, WorkingSet: seed << 19, Rss: seed << 18, Cache: seed << 17, Swap: seed << 10, MappedFile: seed << 9,
			Kernel: seed << 8, ActiveFile: seed << 7, InactiveFile: seed << 19, Failures: seed, PageFaults: seed * 10, MajorPageFaults: seed * 2,
			OomKills: seed * 3, Pressure: stalls(seed),
		},
		Io: []*resourcev1.DeviceIO{{
			Device: "/dev/sda", Major: 8, Bytes: map[string]uint64{"Read": seed * 4096, "Write": seed * 8192}, Reads: seed, Writes: seed * 2,
		}},
		Processes:  &resourcev1.ProcessUsage{Processes: seed, FileDescriptors: seed * 5, Threads: seed * 2, ThreadsMax: 1024, OpenFilesLimit: ptr.To[int64](1024)},
		IoPressure: stalls(seed),
	}
}

func fileSystem(mountpoint string, capacity uint64) *resourcev1.FileSystem {
	return &resourcev1.FileSystem{
		Mountpoint: mountpoint, Capacity: capacity, Available: capacity / 2, Used: capacity / 4, Inodes: 1000, InodesFree: 900, InodesUsed: 100,
	}
}

// everything is a node with one pod of two containers, one of them bounded.
func everything() *stats.Input {
	bounded := cgroup("/kubepods/burstable/pod1/bb", "bb", 3)
	bounded.Cpu.Quota, bounded.Cpu.Periods, bounded.Cpu.ThrottledPeriods, bounded.Cpu.Throttled = 50000, 10, 4, 5e8
	bounded.Memory.Limit, bounded.Memory.SwapLimit = ptr.To[uint64](64<<20), ptr.To[uint64](8<<20)
	root := cgroup("/", "", 50)
	root.Memory.Limit, root.Memory.SwapLimit = ptr.To[uint64](8<<30), ptr.To[uint64](0)
	eth0 := []*resourcev1.NetworkInterface{{Name: "eth0", RxBytes: 1, RxPackets: 2, RxErrors: 3, RxDropped: 4, TxBytes: 5, TxPackets: 6, TxErrors: 7, TxDropped: 8}}
	image := fileSystem("/var/lib/containerd/overlay", 1<<35)
	return &stats.Input{
		NodeName: "n1",
		Usage: &resourcev1.UsageResponse{
			Machine: &resourcev1.Machine{MachineId: "m", SystemUuid: "s", BootId: "b", KernelVersion: "6.1", OsImage: "Some \"Linux\"", Cores: 4, PhysicalCores: 2, Sockets: 1, Memory: 8 << 30, Swap: 1 << 30},
			Node: &resourcev1.NodeUsage{
				Cgroup: root, BootTime: timestamppb.New(start.Add(-time.Hour)), MaxPids: 32768, Processes: 200,
				Network: append([]*resourcev1.NetworkInterface{{Name: "cni0", RxBytes: 9}}, eth0...),
				Disks:   []*resourcev1.Disk{{Device: "/dev/sda1", FileSystem: fileSystem("/", 1<<36), Reads: 1, ReadTime: 1500, IoTime: 2500, InProgress: 2}},
			},
			System: []*resourcev1.CgroupUsage{cgroup("/kubepods", "pods", 20), cgroup("/kubepods/burstable", "", 19), cgroup("/sextant.slice", "kubelet", 7)},
			Pods: []*resourcev1.PodUsage{{
				Uid: "1", Namespace: "ns", Name: "web", Cgroup: cgroup("/kubepods/burstable/pod1", "", 10), Network: eth0,
				Containers: []*resourcev1.CgroupUsage{cgroup("/kubepods/burstable/pod1/aa", "aa", 1), bounded, cgroup("/kubepods/burstable/pod1/cc", "cc", 4), cgroup("/kubepods/burstable/pod1/dd", "dd", 5)},
			}},
			Disk: &resourcev1.DiskUsage{
				Time: read, Node: fileSystem("/var/lib/kubelet", 1<<36), Image: image, Container: image, Runtime: []*resourcev1.FileSystem{image},
				Pods: []*resourcev1.PodFiles{{Uid: "1", Logs: []*resourcev1.ContainerLogs{{Container: "app", Bytes: 500, Inodes: 2}}, OtherBytes: 40, OtherInodes: 1}},
			},
		},
		Pods: map[string]*stats.Pod{"1": {
			UID: "1", Namespace: "ns", Name: "web", Created: start, Sandboxes: []string{"aa"},
			Containers: []stats.Container{
				{ID: "bb", Name: "app", Image: "example.org/app:1", Created: start.Add(time.Second)},
				{ID: "cc", Name: "side", Image: "example.org/side:1", Created: start.Add(2 * time.Second)},
				{ID: "ee", Name: "fresh", Image: "example.org/fresh:1", Created: start.Add(3 * time.Second)},
			},
		}},
		Volumes: []*volumev1.VolumeStats{
			{Uid: "1", Name: "scratch", Time: read, Capacity: 1 << 36, Available: 1 << 35, Used: 3000, Inodes: 1000, InodesFree: 900, InodesUsed: 3, Ephemeral: true},
			{Uid: "1", Name: "data", Time: read, Capacity: 1 << 30, Available: 1 << 29, Used: 1 << 29, Inodes: 10, InodesFree: 5, InodesUsed: 5, ClaimNamespace: "ns", Claim: "data"},
			{Uid: "gone", Name: "data", Time: read},
		},
		Layers: map[string]stats.Layer{"bb": {Mountpoint: image.GetMountpoint(), Bytes: ptr.To[uint64](7000), Inodes: ptr.To[uint64](7), Time: start}},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", name, got, want)
	}
}

func text(t testing.TB, families []*dto.MetricFamily) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func cadvisor(in *stats.Input, failed bool) []*dto.MetricFamily {
	return slices.Collect(stats.CAdvisor(in, failed))
}

func TestSummary(t *testing.T) {
	for name, short := range map[string]bool{"summary.json": false, "summary-short.json": true} {
		got, err := json.MarshalIndent(stats.Summary(everything(), short), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, append(got, '\n'))
	}
}

func TestResource(t *testing.T) {
	golden(t, "resource.txt", text(t, slices.Collect(stats.Resource(everything(), false))))
}

func TestCAdvisor(t *testing.T) {
	got := text(t, cadvisor(everything(), false))
	golden(t, "cadvisor.txt", got)
	// A reader takes it, and no series is told twice.
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(got))
	if err != nil || len(families) < 70 {
		t.Fatal(len(families), err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(got)) {
		series := line[:strings.LastIndexByte(line, '}')+1]
		if strings.HasPrefix(line, "#") || series == "" {
			continue
		}
		if seen[series] {
			t.Errorf("twice: %s", series)
		}
		seen[series] = true
	}
}

// TestNames: every name of cAdvisor's as the kubelet sets it up is there, with
// its type and labels, but for those that docs/measurements.md lists as not served.
func TestNames(t *testing.T) {
	const base = "container,id,image,name,namespace,pod"
	data, err := os.ReadFile("testdata/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] != "#" {
			name := fields[0]
			labels := fields[2:]
			if strings.HasPrefix(name, "container_") && name != "container_scrape_error" {
				labels = append(labels, strings.Split(base, ",")...)
			}
			slices.Sort(labels)
			want[name] = fields[1] + " " + strings.Join(labels, ",")
		}
	}
	got := map[string]string{}
	for _, f := range cadvisor(everything(), false) {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
			shape := strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, ",")
			if had, ok := got[f.GetName()]; ok && had != shape {
				t.Errorf("%s has labels %q and %q", f.GetName(), had, shape)
			}
			got[f.GetName()] = shape
		}
	}
	for name, shape := range want {
		if got[name] != shape {
			t.Errorf("%s is %q, want %q", name, got[name], shape)
		}
	}
	for name := range got {
		if want[name] == "" {
			t.Errorf("%s is no name of cAdvisor's", name)
		}
	}
}

// TestPartsThatAreAway: each costs its own part only.
func TestPartsThatAreAway(t *testing.T) {
	nothing := &stats.Input{NodeName: "n1", Pods: map[string]*stats.Pod{}}
	if s := stats.Summary(nothing, false); s.Node.NodeName != "n1" || s.Node.CPU != nil || len(s.Pods) != 0 {
		t.Errorf("nothing: %+v", s)
	}
	if got := string(text(t, slices.Collect(stats.Resource(nothing, true)))); !strings.HasSuffix(got, "resource_scrape_error 1\n") || strings.Count(got, "\n") != 3 {
		t.Errorf("nothing: %s", got)
	}
	if got := string(text(t, cadvisor(nothing, true))); !strings.Contains(got, "container_scrape_error 1\n") || !strings.Contains(got, "machine_scrape_error 1\n") {
		t.Errorf("nothing: %s", got)
	}
	in := everything()
	in.Usage = nil
	if s := stats.Summary(in, false); len(s.Pods) != 1 || len(s.Pods[0].Containers) != 3 || s.Pods[0].CPU != nil || len(s.Pods[0].VolumeStats) != 2 || *s.Pods[0].Containers[0].Rootfs.UsedBytes != 7000 {
		t.Errorf("without resource: %+v", s.Pods)
	}
	in = everything()
	in.Pods = nil
	if s := stats.Summary(in, false); len(s.Pods) != 0 || s.Node.CPU == nil {
		t.Errorf("without pleg: %+v", s.Pods)
	}
	if got := string(text(t, cadvisor(in, false))); !strings.Contains(got, `container_memory_rss{container="",id="/kubepods/burstable/pod1",image="",name="",namespace="ns",pod="web"}`) {
		t.Error("without pleg: the pod's cgroup is missing")
	}
	in = everything()
	in.Layers, in.Volumes = nil, nil
	if s := stats.Summary(in, false); s.Pods[0].Containers[0].Rootfs != nil || s.Pods[0].Containers[0].Logs == nil || *s.Pods[0].EphemeralStorage.UsedBytes != 540 {
		t.Errorf("without runtime and volume: %+v", s.Pods[0])
	}
}

// BenchmarkCAdvisor writes out a node of 250 pods with three containers each.
func BenchmarkCAdvisor(b *testing.B) {
	in := everything()
	one := in.Usage.GetPods()[0]
	in.Usage.Pods, in.Pods = nil, map[string]*stats.Pod{}
	for i := range 250 {
		uid := fmt.Sprintf("%036d", i)
		p := &stats.Pod{UID: uid, Namespace: "namespace", Name: "some-deployment-7d9f8b6c5-" + uid[30:], Created: start}
		usage := &resourcev1.PodUsage{Uid: uid, Namespace: p.Namespace, Name: p.Name, Cgroup: cgroup("/kubepods/burstable/pod"+uid, "", 10), Network: one.GetNetwork()}
		for c := range 4 {
			id := fmt.Sprintf("%064x", i*4+c)
			usage.Containers = append(usage.Containers, cgroup("/kubepods/burstable/pod"+uid+"/"+id, id, uint64(c+1)))
			if c == 0 {
				p.Sandboxes = []string{id}
				continue
			}
			p.Containers = append(p.Containers, stats.Container{ID: id, Name: fmt.Sprint("container-", c), Image: "registry.example.org/some/image:v1.2.3", Created: start})
		}
		in.Usage.Pods, in.Pods[uid] = append(in.Usage.Pods, usage), p
	}
	var all []time.Duration
	size := 0
	for b.Loop() {
		began := time.Now()
		var out bytes.Buffer
		encoder := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeTextPlain))
		for f := range stats.CAdvisor(in, false) {
			if err := encoder.Encode(f); err != nil {
				b.Fatal(err)
			}
		}
		size = out.Len()
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(size), "bytes")
}
