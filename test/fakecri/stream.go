// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The Stream calls are the List calls cut in pieces, to get around the limit of
// a message. They came with CRI v1 of Kubernetes 1.36.

// streamPiece is how many items one message has at most.
const streamPiece = 100

// sendPieces sends no message at all when there are no items.
func sendPieces[T any](r *Runtime, method, service string, items []T, err error, send func([]T) error) error {
	if r.cfg.Flavor == Containerd16 {
		return status.Errorf(codes.Unimplemented, "unknown method %s for service runtime.v1.%s", method, service)
	}
	if err != nil {
		return err
	}
	for piece := range slices.Chunk(items, streamPiece) {
		if err := send(piece); err != nil {
			return err
		}
	}
	return nil
}

const (
	runtimeService = "RuntimeService"
	imageService   = "ImageService"
)

func (s *runtimeServer) StreamPodSandboxes(req *runtimeapi.StreamPodSandboxesRequest, srv runtimeapi.RuntimeService_StreamPodSandboxesServer) error {
	resp, err := s.ListPodSandbox(srv.Context(), &runtimeapi.ListPodSandboxRequest{Filter: req.GetFilter()})
	return sendPieces(s.r, "StreamPodSandboxes", runtimeService, resp.GetItems(), err, func(p []*runtimeapi.PodSandbox) error {
		return srv.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: p})
	})
}

func (s *runtimeServer) StreamContainers(req *runtimeapi.StreamContainersRequest, srv runtimeapi.RuntimeService_StreamContainersServer) error {
	resp, err := s.ListContainers(srv.Context(), &runtimeapi.ListContainersRequest{Filter: req.GetFilter()})
	return sendPieces(s.r, "StreamContainers", runtimeService, resp.GetContainers(), err, func(p []*runtimeapi.Container) error {
		return srv.Send(&runtimeapi.StreamContainersResponse{Containers: p})
	})
}

func (s *runtimeServer) StreamContainerStats(req *runtimeapi.StreamContainerStatsRequest, srv runtimeapi.RuntimeService_StreamContainerStatsServer) error {
	resp, err := s.ListContainerStats(srv.Context(), &runtimeapi.ListContainerStatsRequest{Filter: req.GetFilter()})
	return sendPieces(s.r, "StreamContainerStats", runtimeService, resp.GetStats(), err, func(p []*runtimeapi.ContainerStats) error {
		return srv.Send(&runtimeapi.StreamContainerStatsResponse{ContainerStats: p})
	})
}

func (s *runtimeServer) StreamPodSandboxStats(req *runtimeapi.StreamPodSandboxStatsRequest, srv runtimeapi.RuntimeService_StreamPodSandboxStatsServer) error {
	resp, err := s.ListPodSandboxStats(srv.Context(), &runtimeapi.ListPodSandboxStatsRequest{Filter: req.GetFilter()})
	return sendPieces(s.r, "StreamPodSandboxStats", runtimeService, resp.GetStats(), err, func(p []*runtimeapi.PodSandboxStats) error {
		return srv.Send(&runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: p})
	})
}

func (s *imageServer) StreamImages(req *runtimeapi.StreamImagesRequest, srv runtimeapi.ImageService_StreamImagesServer) error {
	resp, err := s.ListImages(srv.Context(), &runtimeapi.ListImagesRequest{Filter: req.GetFilter()})
	return sendPieces(s.r, "StreamImages", imageService, resp.GetImages(), err, func(p []*runtimeapi.Image) error {
		return srv.Send(&runtimeapi.StreamImagesResponse{Images: p})
	})
}
