// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// Pods finds pods by name.
type Pods interface {
	// Pod finds a pod of this node, with at least what pleg had published of it before
	// the call; a static pod answers to its mirror's name. Of two pods of one name the
	// desired one is meant.
	Pod(ctx context.Context, namespace, name string) (Pod, bool)
	// Read reads what containers the runtime has of a pod now.
	Read(ctx context.Context, pod *v1.Pod) ([]*runtimeapi.ContainerStatus, error)
}

// Server answers PodWorkerService.
type Server struct {
	podworkerv1.UnimplementedPodWorkerServiceServer
	pods    Pods
	runtime runtimeapi.RuntimeServiceClient
	clock   clock.PassiveClock
	log     *slog.Logger
}

// NewServer makes a Server.
func NewServer(pods Pods, runtime runtimeapi.RuntimeServiceClient, clock clock.PassiveClock, log *slog.Logger) *Server {
	return &Server{pods: pods, runtime: runtime, clock: clock, log: log}
}

// ContainerLogs implements PodWorkerService.
func (s *Server) ContainerLogs(req *podworkerv1.ContainerLogsRequest, stream grpc.ServerStreamingServer[podworkerv1.ContainerLogsResponse]) error {
	if err := check(req); err != nil {
		return err
	}
	after, err := parseCursor(req.GetAfter())
	if err != nil {
		return err
	}
	status, err := s.find(stream.Context(), req, after)
	if err != nil {
		return err
	}
	out := newSender(stream.Send)
	err = s.read(stream.Context(), req, status, after, out)
	return errors.Join(err, out.close())
}

// check refuses options that contradict each other, as the API server does.
func check(req *podworkerv1.ContainerLogsRequest) error {
	switch {
	case req.SinceSeconds != nil && req.SinceTime != nil:
		return rpc.Invalid.Errorf("sinceTime: at most one of `sinceTime` or `sinceSeconds` may be specified")
	case req.SinceSeconds != nil && req.GetSinceSeconds() < 1:
		return rpc.Invalid.Errorf("sinceSeconds: %d: must be greater than 0", req.GetSinceSeconds())
	case req.SinceTime != nil && !req.GetSinceTime().IsValid():
		return rpc.Invalid.Errorf("sinceTime: out of range")
	case req.TailLines != nil && req.GetTailLines() < 0:
		return rpc.Invalid.Errorf("tailLines: %d: must be greater than or equal to 0", req.GetTailLines())
	case req.LimitBytes != nil && req.GetLimitBytes() < 1:
		return rpc.Invalid.Errorf("limitBytes: %d: must be greater than 0", req.GetLimitBytes())
	}
	switch req.GetStream() {
	case "", "All":
	case "Stdout", "Stderr":
		if req.TailLines != nil {
			return rpc.Invalid.Errorf("tailLines: `tailLines` and specific `stream` are mutually exclusive for now")
		}
	default:
		return rpc.Invalid.Errorf("stream: %q: want All, Stdout or Stderr", req.GetStream())
	}
	return nil
}

// find finds the instance whose log is meant. One that is not in the pod's record may
// be in the runtime: the caller may have seen it end before the record was read.
func (s *Server) find(ctx context.Context, req *podworkerv1.ContainerLogsRequest, after *cursor) (*runtimeapi.ContainerStatus, error) {
	p, ok := s.pods.Pod(ctx, req.GetNamespace(), req.GetPod())
	if !ok {
		return nil, rpc.NotFound.Errorf("pod %q does not exist", req.GetPod())
	}
	container, err := containerOf(p.Spec, req.GetContainer())
	if err != nil {
		return nil, err
	}
	find := func() (*runtimeapi.ContainerStatus, error) {
		if after != nil {
			return same(p, container, after)
		}
		return choose(p, container, req.GetPrevious())
	}
	status, err := find()
	if err == nil {
		return status, nil
	}
	statuses, readErr := s.pods.Read(ctx, p.Spec)
	if readErr != nil {
		s.log.DebugContext(ctx, "pod not read", "pod", pod.FullName(p.Spec), "error", readErr.Error())
		return nil, err
	}
	p.Statuses = statuses
	return find()
}

// same is the instance that a log was read of before.
func same(p Pod, container string, after *cursor) (*runtimeapi.ContainerStatus, error) {
	for _, status := range p.Statuses {
		if status.GetId() == after.ID && status.GetMetadata().GetName() == container {
			return status, nil
		}
	}
	return nil, rpc.NotFound.Errorf("the instance of container %q that was read is gone", container)
}

func (s *Server) read(ctx context.Context, req *podworkerv1.ContainerLogsRequest, status *runtimeapi.ContainerStatus, after *cursor, out *sender) error {
	options := &logs.LogOptions{Timestamp: true, Follow: req.GetFollow()}
	to := &lines{timestamps: req.GetTimestamps(), limit: -1, after: after, out: out.add}
	if req.LimitBytes != nil {
		to.limit = req.GetLimitBytes()
	}
	switch {
	case after != nil:
		options.Since = after.Time
	case req.SinceSeconds != nil:
		options.Since = s.clock.Now().Add(-pod.Seconds(req.GetSinceSeconds()))
	case req.SinceTime != nil:
		options.Since = req.GetSinceTime().AsTime()
	}
	if after == nil {
		options.TailLines = req.TailLines
	}
	to.at = cursor{ID: status.GetId()}
	if since, ok := storable(options.Since); ok {
		to.at.Time = since
	}
	stdout, stderr := stream{to, req.GetStream() != "Stderr"}, stream{to, req.GetStream() != "Stdout"}
	// The library reports ends of reading as errors to klog; they are no news.
	quiet := klog.NewContext(ctx, klog.Logger{})
	err := logs.ReadLogs(quiet, status.GetLogPath(), status.GetId(), options, statusOnly{client: s.runtime}, stdout, stderr)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, errors.Is(err, errEnough):
		return nil
	}
	s.log.WarnContext(ctx, "log not read", "container", status.GetId(), "path", status.GetLogPath(), "error", err.Error())
	return rpc.Internal.Errorf("read log: %w", err)
}

// statusOnly is the one call the reader makes to learn when a container ended.
type statusOnly struct {
	cri.RuntimeService
	client runtimeapi.RuntimeServiceClient
}

// ContainerStatus implements the reader's runtime.
func (s statusOnly) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return s.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
}
