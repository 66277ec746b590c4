// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/test/standin"
)

// gauges are resource, volume and the runtime, each of which may be told to fail.
type gauges struct {
	resourcev1.UnimplementedResourceServiceServer
	volumev1.UnimplementedVolumeServiceServer
	runtimeapi.UnimplementedRuntimeServiceServer

	mu    sync.Mutex
	away  map[string]bool
	disks int // how often disks were asked for
	// records are pleg's.
	records *feed.Owner[*plegv1.PodRecord]
	// pods are what resource says, if there are any.
	pods []*resourcev1.PodUsage
}

func (g *gauges) set(name string, away bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.away[name] = away
}

func (g *gauges) fails(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away[name] {
		return rpc.Unavailable.Errorf("%s is told to fail", name)
	}
	return nil
}

func (g *gauges) Usage(_ context.Context, req *resourcev1.UsageRequest) (*resourcev1.UsageResponse, error) {
	if err := g.fails("resource"); err != nil {
		return nil, err
	}
	now := timestamppb.Now()
	cgroup := func(path, name string, seconds uint64) *resourcev1.CgroupUsage {
		return &resourcev1.CgroupUsage{
			Path: path, Name: name, Time: now, Created: now,
			Cpu: &resourcev1.CpuUsage{Usage: seconds * 1e9}, Memory: &resourcev1.MemoryUsage{WorkingSet: seconds << 20},
		}
	}
	resp := &resourcev1.UsageResponse{
		Machine: &resourcev1.Machine{Cores: 4},
		Node:    &resourcev1.NodeUsage{Cgroup: cgroup("/", "", 100), MaxPids: 1000, Processes: 10},
		System:  []*resourcev1.CgroupUsage{cgroup("/kubepods", "pods", 50)},
		Pods: []*resourcev1.PodUsage{{
			Uid: "u1", Namespace: "ns", Name: "p", Cgroup: cgroup("/kubepods/podu1", "", 9),
			Containers: []*resourcev1.CgroupUsage{cgroup("/kubepods/podu1/box", "box", 1), cgroup("/kubepods/podu1/id1", "id1", 8)},
			Network:    []*resourcev1.NetworkInterface{{Name: "eth0", RxBytes: 77}},
		}},
	}
	g.mu.Lock()
	if g.pods != nil {
		resp.Pods = g.pods
	}
	g.mu.Unlock()
	if req.GetDisk() {
		g.mu.Lock()
		g.disks++
		g.mu.Unlock()
		fs := &resourcev1.FileSystem{Mountpoint: "/images", Capacity: 1000}
		resp.Disk = &resourcev1.DiskUsage{Time: now, Node: fs, Image: fs, Container: fs, Runtime: []*resourcev1.FileSystem{fs}}
	}
	return resp, nil
}

func (g *gauges) Stats(context.Context, *volumev1.StatsRequest) (*volumev1.StatsResponse, error) {
	return &volumev1.StatsResponse{Volumes: []*volumev1.VolumeStats{{Uid: "u1", Name: "data", Time: timestamppb.Now(), Used: 5}}}, g.fails("volume")
}

func (g *gauges) ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	return &runtimeapi.ListContainerStatsResponse{Stats: []*runtimeapi.ContainerStats{
		{Attributes: &runtimeapi.ContainerAttributes{Id: "id1"}, WritableLayer: &runtimeapi.FilesystemUsage{
			FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}, UsedBytes: &runtimeapi.UInt64Value{Value: 123},
		}},
		{Attributes: &runtimeapi.ContainerAttributes{Id: "box"}},
	}}, g.fails("runtime")
}

// newGauged is a rig with neighbours that measure.
func newGauged(t testing.TB) (*rig, *gauges) {
	t.Helper()
	r, g := newRig(t, alwaysAllow), &gauges{away: map[string]bool{}}
	resource := r.Kit(house.Resource)
	resourcev1.RegisterResourceServiceServer(resource.Server, g)
	r.Start(resource)
	volume := r.Kit(house.Volume)
	volumev1.RegisterVolumeServiceServer(volume.Server, g)
	r.Start(volume)
	broker, err := rpc.NewServer(rpc.ServerConfig{Socket: r.Paths.Broker(), Identities: resource.Identities, Log: r.Logger})
	if err != nil {
		t.Fatal(err)
	}
	runtimeapi.RegisterRuntimeServiceServer(broker, g)
	r.Go("broker", broker.Run)
	pleg := r.Kit(house.Pleg)
	records := service.Owner(pleg, house.PlegPods)
	r.Start(pleg)
	g.records = records
	bytes := encoded(t)
	standin.Set(r.House, records, "u1", &plegv1.PodRecord{
		Uid: "u1", Namespace: "ns", Name: "p",
		Sandboxes: [][]byte{bytes(&runtimeapi.PodSandboxStatus{Id: "box", State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: 1e18})},
		Containers: [][]byte{
			bytes(&runtimeapi.ContainerStatus{
				Id: "id1", Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "example.org/c:1"},
				State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: 2e18,
			}),
			bytes(&runtimeapi.ContainerStatus{Id: "id0", Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, State: runtimeapi.ContainerState_CONTAINER_EXITED}),
		},
	})
	standin.Set(r.House, records, "u2", &plegv1.PodRecord{Uid: "u2", Namespace: "ns", Name: "ended"})
	r.Eventually("all is known", func() bool { return strings.Contains(r.get("/metrics/cadvisor").body, `container="c"`) })
	return r, g
}

// encoded are messages of the runtime as pleg has them.
func encoded(t testing.TB) func(proto.Message) []byte {
	return func(m proto.Message) []byte {
		t.Helper()
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
}

func (r *rig) summary(method, query string) *statsv1alpha1.Summary {
	r.Helper()
	a := r.do(who{}, method, "/stats/summary"+query)
	s := &statsv1alpha1.Summary{}
	if err := json.Unmarshal([]byte(a.body), s); err != nil || a.code != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
		r.Fatalf("%d %v %s: %v", a.code, a.header, a.body, err)
	}
	return s
}

func TestSummary(t *testing.T) {
	r, g := newGauged(t)
	s := r.summary(http.MethodGet, "")
	if s.Node.NodeName != "n1" || *s.Node.CPU.UsageCoreNanoSeconds != 100e9 || *s.Node.Rlimit.MaxPID != 1000 || *s.Node.Fs.CapacityBytes != 1000 || *s.Node.Runtime.ImageFs.CapacityBytes != 1000 {
		t.Errorf("node: %+v", s.Node)
	}
	if len(s.Pods) != 1 {
		t.Fatalf("pods: %+v", s.Pods)
	}
	p := s.Pods[0]
	if p.PodRef != (statsv1alpha1.PodReference{Name: "p", Namespace: "ns", UID: "u1"}) || p.StartTime.UnixNano() != 1e18 || *p.Network.RxBytes != 77 || len(p.VolumeStats) != 1 {
		t.Errorf("pod: %+v", p)
	}
	if len(p.Containers) != 1 || p.Containers[0].Name != "c" || p.Containers[0].StartTime.UnixNano() != 2e18 || *p.Containers[0].Rootfs.UsedBytes != 123 || *p.Containers[0].Rootfs.CapacityBytes != 1000 {
		t.Errorf("containers: %+v", p.Containers)
	}
	asked := g.disks
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		short := r.summary(method, "?only_cpu_and_memory=true")
		if short.Node.Fs != nil || short.Pods[0].VolumeStats != nil || short.Pods[0].Containers[0].Rootfs != nil || *short.Pods[0].Memory.WorkingSetBytes != 9<<20 {
			t.Errorf("%s: more than CPU and memory: %+v", method, short)
		}
	}
	if g.disks != asked {
		t.Error("disks were measured for nothing")
	}
}

// TestPartsAway: a service that is away costs its own part.
func TestPartsAway(t *testing.T) {
	r, g := newGauged(t)
	for _, c := range []struct {
		part  string
		check func(*statsv1alpha1.Summary) bool
	}{
		{"volume", func(s *statsv1alpha1.Summary) bool {
			return s.Pods[0].VolumeStats == nil && s.Pods[0].Containers[0].Rootfs != nil && s.Node.CPU != nil
		}},
		{"runtime", func(s *statsv1alpha1.Summary) bool {
			return s.Pods[0].VolumeStats != nil && s.Pods[0].Containers[0].Rootfs == nil && s.Node.CPU != nil
		}},
		{"resource", func(s *statsv1alpha1.Summary) bool {
			return s.Pods[0].VolumeStats != nil && s.Pods[0].Containers[0].Rootfs != nil && s.Node.CPU == nil
		}},
	} {
		g.set(c.part, true)
		if s := r.summary(http.MethodGet, ""); !c.check(s) {
			t.Errorf("without %s: %+v", c.part, s)
		}
		g.set(c.part, false)
	}
	expect(t, "resource", r.get("/metrics/resource"), 200, "resource_scrape_error 0\n")
	expect(t, "cadvisor", r.get("/metrics/cadvisor"), 200, "container_scrape_error 0\n")
	g.set("resource", true)
	expect(t, "resource", r.get("/metrics/resource"), 200, "resource_scrape_error 1\n")
	expect(t, "cadvisor", r.get("/metrics/cadvisor"), 200, "container_scrape_error 1\n")
	expect(t, "who it is", r.get("/metrics"), 200, `kubelet_metrics_provider{provider="cadvisor"} 1`)
}

// families of a scrape, as Prometheus reads them.
func families(t *testing.T, body io.Reader) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(body)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMetricsOfCgroups(t *testing.T) {
	r, _ := newGauged(t)
	a := r.get("/metrics/resource")
	got := families(t, strings.NewReader(a.body))
	if m := got["pod_cpu_usage_seconds_total"].GetMetric(); len(m) != 1 || m[0].GetCounter().GetValue() != 9 || m[0].TimestampMs == nil {
		t.Errorf("pod CPU: %v", m)
	}
	if m := got["container_start_time_seconds"].GetMetric(); len(m) != 1 || m[0].GetGauge().GetValue() != 2e9 || m[0].TimestampMs != nil {
		t.Errorf("start time: %v", m)
	}
	// Compressed for those who ask.
	transport := r.client(who{}).Transport.(*http.Transport)
	transport.DisableCompression = true
	req, err := http.NewRequestWithContext(r.House.Context(), http.MethodGet, "https://"+address(r.port)+"/metrics/cadvisor", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("not compressed: %v", resp.Header)
	}
	body, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got = families(t, body)
	rows := map[string]float64{}
	for _, m := range got["container_cpu_usage_seconds_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		rows[strings.Join([]string{labels["namespace"], labels["pod"], labels["container"], labels["name"], labels["image"], labels["id"]}, " ")] = m.GetCounter().GetValue()
	}
	for row, want := range map[string]float64{
		"     /": 100, "     /kubepods": 50, "ns p    /kubepods/podu1": 9,
		"ns p  box pause /kubepods/podu1/box": 1, "ns p c id1 example.org/c:1 /kubepods/podu1/id1": 8,
	} {
		if rows[row] != want {
			t.Errorf("%q is %v, want %v", row, rows[row], want)
		}
	}
	if len(rows) != 5 {
		t.Errorf("rows: %v", rows)
	}
	if m := got["container_network_receive_bytes_total"].GetMetric(); len(m) != 1 || !hasLabel(m[0], "container", "") || !hasLabel(m[0], "interface", "eth0") {
		t.Errorf("network: %v", m)
	}
}

func hasLabel(m *dto.Metric, name, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue() == value
		}
	}
	return false
}
