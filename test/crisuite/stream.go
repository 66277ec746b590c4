// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// collect reads a stream to its end.
func collect[T any](stream grpc.ServerStreamingClient[T], err error) (all []*T, _ error) {
	for err == nil {
		var m *T
		if m, err = stream.Recv(); err == nil {
			all = append(all, m)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

var streamTests = []test{
	{"say what the lists say, or are unimplemented", func(e *env) {
		p := e.pod()
		c := p.server()
		q := e.pod()
		q.server()
		sandboxes, err := collect(e.runtime.StreamPodSandboxes(e.ctx, &runtimeapi.StreamPodSandboxesRequest{
			Filter: &runtimeapi.PodSandboxFilter{Id: p.id},
		}))
		if !e.target.Features.Streams {
			e.code("StreamPodSandboxes", err, codes.Unimplemented)
			_, err = collect(e.runtime.StreamContainers(e.ctx, &runtimeapi.StreamContainersRequest{}))
			e.code("StreamContainers", err, codes.Unimplemented)
			_, err = collect(e.images.StreamImages(e.ctx, &runtimeapi.StreamImagesRequest{}))
			e.code("StreamImages", err, codes.Unimplemented)
			return
		}
		e.ok("StreamPodSandboxes", err)
		if len(sandboxes) != 1 || len(sandboxes[0].GetPodSandboxes()) != 1 || sandboxes[0].GetPodSandboxes()[0].GetId() != p.id {
			e.Errorf("sandboxes %v", sandboxes)
		}
		containers, err := collect(e.runtime.StreamContainers(e.ctx, &runtimeapi.StreamContainersRequest{
			Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.id},
		}))
		e.ok("StreamContainers", err)
		if len(containers) != 1 || len(containers[0].GetContainers()) != 1 || containers[0].GetContainers()[0].GetId() != c.id {
			e.Errorf("containers %v", containers)
		}
		none, err := collect(e.runtime.StreamContainers(e.ctx, &runtimeapi.StreamContainersRequest{
			Filter: &runtimeapi.ContainerFilter{Id: "ffffffffffffffff"},
		}))
		e.ok("StreamContainers of nothing", err)
		if len(none) != 0 {
			e.Errorf("nothing is %v", none)
		}
		stats, err := collect(e.runtime.StreamContainerStats(e.ctx, &runtimeapi.StreamContainerStatsRequest{
			Filter: &runtimeapi.ContainerStatsFilter{Id: c.id},
		}))
		e.ok("StreamContainerStats", err)
		if len(stats) != 1 || len(stats[0].GetContainerStats()) != 1 {
			e.Fatalf("container stats %v", stats)
		}
		e.checkStats(stats[0].GetContainerStats()[0], c)
		podStats, err := collect(e.runtime.StreamPodSandboxStats(e.ctx, &runtimeapi.StreamPodSandboxStatsRequest{
			Filter: &runtimeapi.PodSandboxStatsFilter{Id: p.id},
		}))
		e.ok("StreamPodSandboxStats", err)
		if len(podStats) != 1 || len(podStats[0].GetPodSandboxStats()) != 1 {
			e.Errorf("sandbox stats %v", podStats)
		}
		images, err := collect(e.images.StreamImages(e.ctx, &runtimeapi.StreamImagesRequest{}))
		e.ok("StreamImages", err)
		if len(images) == 0 || len(images[0].GetImages()) == 0 {
			e.Errorf("images %v", images)
		}
	}},
}
