// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"archive/tar"
	"bytes"
	"context"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CheckpointContainer writes an archive with nothing in it. containerd 1.6 does
// not have the method.
func (s *runtimeServer) CheckpointContainer(_ context.Context, req *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	r := s.r
	if r.cfg.Flavor == Containerd16 {
		return nil, status.Error(codes.Unimplemented, "unknown method CheckpointContainer for service runtime.v1.RuntimeService")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := byID(r.containers, req.GetContainerId())
	if !ok {
		return nil, notFound("failed to find container %q in store", req.GetContainerId())
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, failure("container %q is in %s state", req.GetContainerId(), c.state)
	}
	var archive bytes.Buffer
	if err := tar.NewWriter(&archive).Close(); err != nil {
		return nil, failure("checkpoint: %v", err)
	}
	if err := os.WriteFile(req.GetLocation(), archive.Bytes(), 0o600); err != nil {
		return nil, failure("checkpoint: %v", err)
	}
	return &runtimeapi.CheckpointContainerResponse{}, nil
}
