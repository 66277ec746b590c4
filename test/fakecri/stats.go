// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Stats is the usage a container is to show.
type Stats struct {
	CPUNanos   uint64 // CPU time used since its start
	WorkingSet uint64 // bytes
	Usage      uint64 // bytes; 0 for WorkingSet
	RSS        uint64 // bytes
	Layer      uint64 // bytes in the writable layer
}

// SetStats fixes what a container's statistics say. Without it a container
// uses one hundredth of a CPU since its start, and 1 MiB.
func (r *Runtime) SetStats(containerID string, s Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := byID(r.containers, containerID); ok {
		c.stats = &s
	}
}

func u64(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

// containerStats has no CPU and memory for a container that does not run.
func (r *Runtime) containerStats(c *container) *runtimeapi.ContainerStats {
	now := r.now()
	use := Stats{WorkingSet: 1 << 20, RSS: 1 << 19}
	if !c.started.IsZero() && now.After(c.started) {
		use.CPUNanos = uint64(now.Sub(c.started).Nanoseconds() / 100)
	}
	if c.stats != nil {
		use = *c.stats
	}
	if use.Usage == 0 {
		use.Usage = use.WorkingSet
	}
	st := &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: proto.CloneOf(c.config.GetMetadata()),
			Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: imageFilesystem},
			UsedBytes: u64(use.Layer), InodesUsed: u64(1),
		},
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return st
	}
	st.Cpu = &runtimeapi.CpuUsage{Timestamp: now.UnixNano(), UsageCoreNanoSeconds: u64(use.CPUNanos), UsageNanoCores: u64(0)}
	st.Memory = &runtimeapi.MemoryUsage{
		Timestamp: now.UnixNano(), WorkingSetBytes: u64(use.WorkingSet), UsageBytes: u64(use.Usage), RssBytes: u64(use.RSS),
		AvailableBytes: u64(0), PageFaults: u64(0), MajorPageFaults: u64(0),
	}
	if limit := c.resources.GetMemoryLimitInBytes(); limit > int64(use.WorkingSet) {
		st.Memory.AvailableBytes = u64(uint64(limit) - use.WorkingSet)
	}
	return st
}

func (s *runtimeServer) ContainerStats(_ context.Context, req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := byID(r.containers, req.GetContainerId())
	if !ok {
		return nil, notFound("failed to find container")
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, failure("unexpected metrics response: []")
	}
	return &runtimeapi.ContainerStatsResponse{Stats: r.containerStats(c)}, nil
}

func (s *runtimeServer) ListContainerStats(_ context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	f := req.GetFilter()
	resp := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range r.containers {
		if strings.HasPrefix(c.id, f.GetId()) && strings.HasPrefix(c.sandbox.id, f.GetPodSandboxId()) &&
			selects(f.GetLabelSelector(), c.config.GetLabels()) {
			resp.Stats = append(resp.Stats, r.containerStats(c))
		}
	}
	slices.SortFunc(resp.Stats, func(a, b *runtimeapi.ContainerStats) int {
		return strings.Compare(a.Attributes.Id, b.Attributes.Id)
	})
	return resp, nil
}

func (s *runtimeServer) PodSandboxStats(_ context.Context, req *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, ok := byID(r.sandboxes, req.GetPodSandboxId())
	if !ok {
		return nil, notFound("an error occurred when trying to find sandbox %s", req.GetPodSandboxId())
	}
	if sb.state != runtimeapi.PodSandboxState_SANDBOX_READY {
		code := codes.Unavailable
		if r.cfg.Flavor == Containerd16 {
			code = codes.Unknown
		}
		return nil, status.Errorf(code, "failed to get pod sandbox stats since sandbox container %q is not in ready state", sb.id)
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: r.sandboxStats(sb)}, nil
}

// sandboxStats sums up the containers that run; the sandbox itself uses nothing.
func (r *Runtime) sandboxStats(sb *sandbox) *runtimeapi.PodSandboxStats {
	now := r.now().UnixNano()
	var cpu, mem, usage, rss, n uint64
	linux := &runtimeapi.LinuxPodSandboxStats{}
	for _, c := range r.containersOf(sb.id) {
		if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		st := r.containerStats(c)
		linux.Containers = append(linux.Containers, st)
		cpu += st.Cpu.UsageCoreNanoSeconds.Value
		mem += st.Memory.WorkingSetBytes.Value
		usage += st.Memory.UsageBytes.Value
		rss += st.Memory.RssBytes.Value
		n++
	}
	linux.Cpu = &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: u64(cpu), UsageNanoCores: u64(0)}
	linux.Memory = &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: u64(mem), UsageBytes: u64(usage), RssBytes: u64(rss)}
	linux.Process = &runtimeapi.ProcessUsage{Timestamp: now, ProcessCount: u64(n + 1)}
	if sb.ip.IsValid() {
		linux.Network = &runtimeapi.NetworkUsage{Timestamp: now, DefaultInterface: &runtimeapi.NetworkInterfaceUsage{
			Name: "eth0", RxBytes: u64(0), RxErrors: u64(0), TxBytes: u64(0), TxErrors: u64(0),
		}}
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: sb.id, Metadata: proto.CloneOf(sb.config.GetMetadata()),
			Labels: sb.config.GetLabels(), Annotations: sb.config.GetAnnotations(),
		},
		Linux: linux,
	}
}

func (s *runtimeServer) ListPodSandboxStats(_ context.Context, req *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	f := req.GetFilter()
	resp := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, sb := range r.sandboxes {
		if strings.HasPrefix(sb.id, f.GetId()) && selects(f.GetLabelSelector(), sb.config.GetLabels()) &&
			sb.state == runtimeapi.PodSandboxState_SANDBOX_READY {
			resp.Stats = append(resp.Stats, r.sandboxStats(sb))
		}
	}
	slices.SortFunc(resp.Stats, func(a, b *runtimeapi.PodSandboxStats) int {
		return strings.Compare(a.Attributes.Id, b.Attributes.Id)
	})
	return resp, nil
}
