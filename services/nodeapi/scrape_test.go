// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/test/standin"
)

// fill makes the node one of so many pods, each a sandbox and three containers.
func (g *gauges) fill(r *rig, pods int) {
	r.Helper()
	bytes, at := encoded(r), timestamppb.Now()
	usage := func(path, name string, n uint64) *resourcev1.CgroupUsage {
		stall := &resourcev1.Stall{Total: n * 1e6, Avg10: 1.5, Avg60: 0.5, Avg300: 0.25}
		stalls := &resourcev1.Stalls{Some: stall, Full: stall}
		return &resourcev1.CgroupUsage{
			Path: path, Name: name, Time: at, Created: at, IoPressure: stalls,
			Cpu:       &resourcev1.CpuUsage{Usage: n * 1e9, User: n * 6e8, System: n * 4e8, Periods: n * 100, Shares: 512, Period: 100000, Quota: 50000, Pressure: stalls},
			Memory:    &resourcev1.MemoryUsage{Usage: n << 24, MaxUsage: n << 25, WorkingSet: n << 23, Rss: n << 22, Cache: n << 21, MappedFile: n << 20, PageFaults: n, Limit: proto.Uint64(n << 26), Pressure: stalls},
			Io:        []*resourcev1.DeviceIO{{Device: "/dev/vda", Major: 254, Bytes: map[string]uint64{"Read": n << 20, "Write": n << 19}, Reads: n, Writes: n}},
			Processes: &resourcev1.ProcessUsage{Processes: n, Threads: 8 * n, FileDescriptors: 30 * n, OpenFilesLimit: proto.Int64(1048576)},
		}
	}
	var all []*resourcev1.PodUsage
	for i := range pods {
		uid := fmt.Sprintf("%036d", i)
		name := "some-deployment-7d9f8b6c5-" + uid[30:]
		p := &resourcev1.PodUsage{
			Uid: uid, Namespace: "namespace", Name: name, Cgroup: usage("/kubepods/burstable/pod"+uid, "", 10),
			Network: []*resourcev1.NetworkInterface{{Name: "eth0", RxBytes: 1 << 30, TxBytes: 1 << 29, RxPackets: 1 << 20, TxPackets: 1 << 20}},
		}
		record := &plegv1.PodRecord{Uid: uid, Namespace: p.Namespace, Name: name}
		for c := range 4 {
			id := fmt.Sprintf("%064x", i*4+c)
			p.Containers = append(p.Containers, usage("/kubepods/burstable/pod"+uid+"/"+id, id, uint64(c+1)))
			if c == 0 {
				record.Sandboxes = [][]byte{bytes(&runtimeapi.PodSandboxStatus{Id: id, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: 1e18})}
				continue
			}
			record.Containers = append(record.Containers, bytes(&runtimeapi.ContainerStatus{
				Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprint("container-", c)}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
				Image: &runtimeapi.ImageSpec{Image: "registry.example.org/some/image:v1.2.3"}, CreatedAt: 2e18,
			}))
		}
		all = append(all, p)
		standin.Set(r.House, g.records, uid, record)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pods = all
}

// BenchmarkScrape is one whole scrape of /metrics/cadvisor at 250 pods of a sandbox
// and three containers, as Prometheus does it: TLS on a connection that stays,
// compressed. What resource takes to read the cgroups is its own benchmark.
func BenchmarkScrape(b *testing.B) {
	const pods = 250
	r, g := newGauged(b)
	g.fill(r, pods)
	r.Eventually("all is known", func() bool {
		body := r.get("/metrics/cadvisor").body
		return strings.Count(body, "container_memory_rss{container=\"container-") == 3*pods
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: callerTLS(who{}), DisableCompression: true}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequest(http.MethodGet, "https://"+address(r.port)+"/metrics/cadvisor", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	var all []time.Duration
	size, spent := int64(0), processorTime(b)
	for b.Loop() {
		began := time.Now()
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		size, err = io.Copy(io.Discard, resp.Body)
		if err != nil || resp.Header.Get("Content-Encoding") != "gzip" {
			b.Fatal(err, resp.Header)
		}
		if err := resp.Body.Close(); err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(began))
	}
	spent = processorTime(b) - spent
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(spent.Microseconds())/1000/float64(len(all)), "cpu-ms")
	b.ReportMetric(float64(size), "bytes")
}

// processorTime is what this process has used: the client and the neighbours are
// in it as well.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
