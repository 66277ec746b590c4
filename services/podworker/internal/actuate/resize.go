// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/criconfig"
)

// ResizeSpec is what the running containers of a pod are to have.
type ResizeSpec struct {
	// Sandbox as it was made, with the pod as it is allocated now.
	Sandbox   SandboxSpec
	SandboxID string
	// MemoryLimit is what the pod's cgroup has until the allocation is settled, in bytes, and
	// 0 for none; nil where the cgroup has what is allocated.
	MemoryLimit *int64
	Changes     []SizeChange
}

// SizeChange is what happens to one container. From is nil where it is not known
// what it has.
type SizeChange struct {
	Container, ID string
	From          *pod.Size
	To            pod.Size
	Allocation    Allocation
}

// Resize gives running containers other resources (KEP-1287): first memory, then
// CPU, each time what shrinks before what grows. The pod's cgroup is resource's:
// it has room for both while this is done. It may be repeated; what failed in the
// middle is done again from the beginning.
func (a *Actuator) Resize(ctx context.Context, spec ResizeSpec) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	if err := a.shrinkable(ctx, spec); err != nil {
		return failed(reason.ResizePodInPlaceError, err)
	}
	if err := a.resizeSandbox(ctx, cfg, spec); err != nil {
		return failed(reason.ResizePodInPlaceError, err)
	}
	have := map[string]pod.Size{}
	for _, c := range spec.Changes {
		have[c.ID] = c.To
		if c.From != nil {
			have[c.ID] = *c.From
		}
	}
	for _, part := range []resizePart{memoryPart, cpuPart} {
		for _, c := range part.order(spec.Changes) {
			size := part.move(have[c.ID], c.To)
			if err := a.resizeContainer(ctx, cfg, spec, c, size); err != nil {
				return failed(reason.ResizePodInPlaceError, err)
			}
			have[c.ID] = size
		}
	}
	return nil
}

// Pin has a running container run on CPUs, a list such as "0-3,7"; all else stays.
func (a *Actuator) Pin(ctx context.Context, id, cpus string) error {
	_, err := a.deps.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: cpus},
	})
	return err
}

// resizePart is one of the two resources.
type resizePart struct {
	request, limit func(*pod.Size) *int64
}

var (
	memoryPart = resizePart{func(s *pod.Size) *int64 { return &s.MemoryRequest }, func(s *pod.Size) *int64 { return &s.MemoryLimit }}
	cpuPart    = resizePart{func(s *pod.Size) *int64 { return &s.CPURequest }, func(s *pod.Size) *int64 { return &s.CPULimit }}
)

// move is a size with this part of another.
func (p resizePart) move(from, to pod.Size) pod.Size {
	*p.request(&from), *p.limit(&from) = *p.request(&to), *p.limit(&to)
	return from
}

// order is what changes in this part, what shrinks first.
func (p resizePart) order(all []SizeChange) []SizeChange {
	grows := func(c SizeChange) int64 {
		if c.From == nil {
			return 0
		}
		return cmp.Or(*p.limit(&c.To)-*p.limit(c.From), *p.request(&c.To)-*p.request(c.From))
	}
	var out []SizeChange
	for _, c := range all {
		if c.From == nil || p.move(*c.From, c.To) != *c.From {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b SizeChange) int {
		return cmp.Compare(min(max(grows(a), -1), 1), min(max(grows(b), -1), 1))
	})
	return out
}

// resizeContainer sets all of a container's values: runtimes derive some from
// others.
func (a *Actuator) resizeContainer(ctx context.Context, cfg *kubeletconfig.Config, spec ResizeSpec, change SizeChange, size pod.Size) error {
	p := spec.Sandbox.Pod
	c, _ := pod.FindContainer(p, change.Container)
	if c == nil {
		return fmt.Errorf("pod %q has no container %q", pod.String(p), change.Container)
	}
	in, err := a.containerInput(ctx, cfg, ContainerSpec{
		Sandbox: spec.Sandbox, SandboxID: spec.SandboxID, Container: change.Container, Allocation: change.Allocation,
	}, pod.Sized(c, size))
	if err != nil {
		return err
	}
	_, err = a.deps.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: change.ID, Linux: criconfig.Resources(in),
	})
	return err
}

// resizeSandbox tells the runtime the sums of the pod. Runtimes need not care.
func (a *Actuator) resizeSandbox(ctx context.Context, cfg *kubeletconfig.Config, spec ResizeSpec) error {
	resources, overhead := pod.SandboxResources(spec.Sandbox.Pod, a.resourceOptions(cfg))
	_, err := a.deps.Runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: spec.SandboxID, Resources: resources, Overhead: overhead,
	})
	// containerd 2.2 says "not implemented" without the code for it
	// (containerd/containerd#13023).
	s, _ := status.FromError(err)
	if s.Code() == codes.Unimplemented || s.Code() == codes.Unknown && strings.Contains(s.Message(), "not implemented") {
		return nil
	}
	return err
}

// lowered is the memory limit that the pod's cgroup is to have, where it is lower than the
// one it has, or where it has none; 0 where there is none to compare with what is used.
func (s *ResizeSpec) lowered() int64 {
	limit := ptr.Deref(pod.PodCgroupResources(s.Sandbox.Pod, true, pod.DefaultQuotaPeriod).Memory, 0)
	if limit <= 0 || s.MemoryLimit == nil || *s.MemoryLimit > 0 && limit >= *s.MemoryLimit {
		return 0
	}
	return limit
}

// shrinkable finds, as far as can be told beforehand, whether memory limits are
// about to fall below what is used: the kernel would kill for it.
func (a *Actuator) shrinkable(ctx context.Context, spec ResizeSpec) error {
	limits := map[string]int64{}
	for _, c := range spec.Changes {
		if c.To.MemoryLimit != 0 && (c.From == nil || c.From.MemoryLimit == 0 || c.To.MemoryLimit < c.From.MemoryLimit) {
			limits[c.ID] = c.To.MemoryLimit
		}
	}
	whole := spec.lowered()
	if len(limits) == 0 && whole == 0 {
		return nil
	}
	resp, err := a.deps.Runtime.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: spec.SandboxID})
	if err != nil {
		return fmt.Errorf("unable to read memory usage for pod %q: %w", pod.String(spec.Sandbox.Pod), err)
	}
	var errs []error
	linux := resp.GetStats().GetLinux()
	if whole > 0 {
		used := linux.GetMemory().GetUsageBytes()
		switch {
		case used == nil:
			errs = append(errs, fmt.Errorf("missing pod memory usage"))
		case used.GetValue() >= uint64(whole):
			errs = append(errs, fmt.Errorf("attempting to set pod memory limit (%d) below current usage (%d)", whole, used.GetValue()))
		}
	}
	for _, c := range linux.GetContainers() {
		limit, shrinks := limits[c.GetAttributes().GetId()]
		name, used := c.GetAttributes().GetMetadata().GetName(), c.GetMemory().GetUsageBytes()
		switch {
		case !shrinks:
		case used == nil:
			errs = append(errs, fmt.Errorf("missing container %q memory usage", name))
		case used.GetValue() >= uint64(limit):
			errs = append(errs, fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)", name, limit, used.GetValue()))
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return fmt.Errorf("cannot decrease memory limits: %w", err)
	}
	return nil
}
