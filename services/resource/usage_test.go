// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/gauge"
	"github.com/sextant-node/sextant/test/cgrouptest"
)

// images is the runtime's image service: it keeps images in a folder, or does
// not answer.
type images struct {
	dir  string
	used uint64
	err  error
}

func (i *images) Invoke(_ context.Context, method string, _, reply any, _ ...grpc.CallOption) error {
	if i.err != nil {
		return i.err
	}
	if method != runtimeapi.ImageService_ImageFsInfo_FullMethodName {
		return fmt.Errorf("resource calls %s", method)
	}
	proto.Merge(reply.(proto.Message), &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: i.dir}, UsedBytes: &runtimeapi.UInt64Value{Value: i.used}, InodesUsed: &runtimeapi.UInt64Value{Value: 3},
	}}})
	return nil
}

func (i *images) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("resource opens no streams")
}

// measured is a rig that reads the real cgroups by a clock that stands still
// unless it is told to go ahead.
type measured struct {
	*rig
	images *images
	ahead  atomic.Int64
}

func newMeasured(t testing.TB) *measured {
	t.Helper()
	m := &measured{images: &images{dir: t.TempDir(), used: 77}}
	start := time.Now()
	m.rig = newRig(t, func(deps *resource.Deps) {
		deps.Gauge = gauge.Host{Root: "/", Version: 1}
		if cgrouptest.V2() {
			deps.Gauge.Version = 2
		}
		deps.Images = m.images
		deps.Now = func() time.Time { return start.Add(time.Duration(m.ahead.Load())) }
	})
	return m
}

// passes has the clock go on by more than a reading is kept.
func (m *measured) passes() { m.ahead.Add(int64(2 * time.Second)) }

func (m *measured) usage(disk bool) *resourcev1.UsageResponse {
	m.Helper()
	resp, err := m.client.Usage(m.Context(), &resourcev1.UsageRequest{Disk: disk})
	if err != nil {
		m.Fatal(err)
	}
	return resp
}

// container makes a container's cgroup, as a runtime would.
func (m *measured) container(p *v1.Pod, digit string) pod.CgroupName {
	m.Helper()
	name := m.kubepods("burstable", "pod"+string(p.UID)).Child(strings.Repeat(digit, 64))
	if err := (cgroup.Tree{Driver: pod.Cgroupfs}).Ensure(name, cgroup.Values{}); err != nil {
		m.Fatal(err)
	}
	return name
}

func TestUsageOfAPod(t *testing.T) {
	m := newMeasured(t)
	if _, err := m.client.Usage(m.Context(), &resourcev1.UsageRequest{}); !rpc.Is(err, rpc.Unavailable) {
		t.Errorf("before anything is known: %v", err)
	}
	m.settle()
	p := burstable("u", "500m")
	m.admit(p, false)
	m.container(p, "a")
	cgrouptest.Occupy(t, m.container(p, "b"))
	m.passes() // the evictor may have read before
	first := m.usage(false)
	if len(first.GetPods()) != 1 {
		t.Fatalf("pods: %v", first.GetPods())
	}
	got := first.GetPods()[0]
	if got.GetUid() != "u" || got.GetNamespace() != "ns" || got.GetName() != "name-u" || len(got.GetContainers()) != 2 {
		t.Fatalf("the pod: %v", got)
	}
	slices.SortFunc(got.Containers, func(a, b *resourcev1.CgroupUsage) int { return strings.Compare(a.GetName(), b.GetName()) })
	empty, busy := got.GetContainers()[0], got.GetContainers()[1]
	if empty.GetName() != strings.Repeat("a", 64) || empty.GetProcesses().GetProcesses() != 0 || empty.GetProcesses().OpenFilesLimit != nil {
		t.Errorf("a container without processes: %v", empty)
	}
	if p := busy.GetProcesses(); p.GetProcesses() != 1 || p.GetThreads() != 1 || p.GetFileDescriptors() == 0 || p.GetOpenFilesLimit() == 0 {
		t.Errorf("a container with one process: %v", p)
	}
	if busy.GetCpu() == nil || busy.GetMemory() == nil || busy.GetCpu().UsageNanoCores != nil {
		t.Errorf("its first reading: %v", busy)
	}
	if got.GetCgroup().GetCpu().GetShares() < 490 || got.GetCgroup().GetPath() != "/"+strings.Join(m.kubepods("burstable", "podu"), "/") {
		t.Errorf("the pod's cgroup: %v", got.GetCgroup())
	}
	if !slices.ContainsFunc(first.GetSystem(), func(c *resourcev1.CgroupUsage) bool { return c.GetName() == "pods" }) {
		t.Error("kubepods is missing")
	}
	// Those who ask within a second share a reading.
	if again := m.usage(false).GetPods()[0].GetCgroup().GetTime(); !proto.Equal(again, got.GetCgroup().GetTime()) {
		t.Error("read again at once")
	}
	m.passes()
	next := m.usage(false)
	if next.GetPods()[0].GetCgroup().GetCpu().UsageNanoCores == nil || next.GetNode().GetCgroup().GetCpu().UsageNanoCores == nil {
		t.Error("no rate after two readings")
	}
	if n := next.GetNode(); n.GetMaxPids() != 32768 || n.GetCgroup().GetMemory().GetLimit() != 8<<30 || n.GetCgroup().GetMemory().GetWorkingSet() == 0 {
		t.Errorf("the node: %v", n)
	}
	if machine := next.GetMachine(); machine.GetCores() != 4 || machine.GetMemory() != 8<<30 || machine.GetSockets() == 0 {
		t.Errorf("the machine: %v", machine)
	}
	m.release("u")
	m.passes()
	if left := m.usage(false).GetPods(); len(left) != 1 { // the process still holds it
		t.Errorf("pods that are not released: %v", left)
	}
}

func TestUsageOfDisks(t *testing.T) {
	m := newMeasured(t)
	logs := t.TempDir()
	m.configure(func(c *kubeletconfig.Config) { c.Kubelet.PodLogsDir = logs })
	m.answers()
	m.Eventually("the node's item", func() bool { _, ok := m.node.Get("node"); return ok })
	m.admit(burstable("u", "500m"), false)
	dir := filepath.Join(logs, "ns_name-u_u", "c")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"0.log": 4096, "0.log.20260101-000000": 4096} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	m.passes()
	if m.usage(false).GetDisk() != nil {
		t.Error("measured disks nobody asked for")
	}
	disk := m.usage(true).GetDisk()
	if len(disk.GetPods()) != 1 || len(disk.GetPods()[0].GetLogs()) != 1 {
		t.Fatalf("files: %v", disk)
	}
	if l := disk.GetPods()[0].GetLogs()[0]; l.GetContainer() != "c" || l.GetBytes() < 8192 || l.GetBytes()%512 != 0 || l.GetInodes() != 2 {
		t.Errorf("logs: %v", l)
	}
	if disk.GetNode().GetCapacity() == 0 || disk.GetImage().GetUsed() != 77 || disk.GetImage().GetCapacity() == 0 || disk.GetContainer().GetMountpoint() != m.images.dir {
		t.Errorf("file systems: %v", disk)
	}
	families, err := m.kit.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := 0.0
	for _, f := range families {
		if f.GetName() == "kubelet_container_log_filesystem_used_bytes" {
			found = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if found != float64(disk.GetPods()[0].GetLogs()[0].GetBytes()) {
		t.Errorf("kubelet_container_log_filesystem_used_bytes is %v", found)
	}
	// Without the runtime the rest is still known.
	m.images.err = errors.New("away")
	m.passes()
	resp := m.usage(true)
	if resp.GetDisk().GetImage() != nil || resp.GetDisk().GetNode() == nil || len(resp.GetDisk().GetPods()) != 1 || !strings.Contains(strings.Join(resp.GetErrors(), ";"), "image file systems: away") {
		t.Errorf("without the runtime: %v", resp.GetErrors())
	}
}

// BenchmarkUsage reads 250 pods of three containers and a sandbox each from the
// real cgroups, as one scrape does.
func BenchmarkUsage(b *testing.B) {
	m := newMeasured(b)
	m.configure(func(c *kubeletconfig.Config) { c.Kubelet.MaxPods = 500 })
	m.answers()
	m.Eventually("the node's item", func() bool { _, ok := m.node.Get("node"); return ok })
	const pods = 250
	for i := range pods {
		p := burstable(fmt.Sprintf("%036d", i), "1m")
		if got := decision(m.admit(p, false)); !strings.HasPrefix(got, "admitted") {
			b.Fatal(got)
		}
		for _, digit := range []string{"a", "b", "c", "d"} {
			m.container(p, digit)
		}
	}
	var all []time.Duration
	for b.Loop() {
		m.passes()
		began := time.Now()
		if n := len(m.usage(false).GetPods()); n != pods {
			b.Fatalf("%d pods", n)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
}
