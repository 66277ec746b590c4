// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// LeaveTask gives a container that does not run a task of which the CRI does not know, as
// containerd may when the caller of StartContainer dies: the container cannot be removed
// until the task has been killed and deleted by containerd's own API.
func (r *Runtime) LeaveTask(containerID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := byID(r.containers, containerID); ok {
		c.leftover, c.task = true, make(chan struct{})
	}
}

// tasksServer is the part of containerd's own API that ends such tasks.
type tasksServer struct {
	tasks.UnimplementedTasksServer
	r *Runtime
}

// leftover is the container with such a task; mu is held.
func (s *tasksServer) leftover(ctx context.Context, id string) (*container, error) {
	if got := metadata.ValueFromIncomingContext(ctx, "containerd-namespace"); len(got) != 1 || got[0] != "k8s.io" {
		return nil, status.Errorf(codes.FailedPrecondition, "namespace is required: %q", got)
	}
	if c, ok := s.r.containers[id]; ok && c.leftover {
		return c, nil
	}
	return nil, notFound("task %s", id)
}

func (s *tasksServer) Kill(ctx context.Context, req *tasks.KillRequest) (*emptypb.Empty, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	c, err := s.leftover(ctx, req.GetContainerID())
	if err != nil {
		return nil, err
	}
	select {
	case <-c.task:
		return nil, notFound("process already finished")
	default:
		close(c.task)
	}
	return &emptypb.Empty{}, nil
}

func (s *tasksServer) Wait(ctx context.Context, req *tasks.WaitRequest) (*tasks.WaitResponse, error) {
	s.r.mu.Lock()
	c, err := s.leftover(ctx, req.GetContainerID())
	s.r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-c.task:
		return &tasks.WaitResponse{ExitStatus: 137}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (s *tasksServer) Delete(ctx context.Context, req *tasks.DeleteTaskRequest) (*tasks.DeleteResponse, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	c, err := s.leftover(ctx, req.GetContainerID())
	if err != nil {
		return nil, err
	}
	select {
	case <-c.task:
	default:
		return nil, status.Error(codes.FailedPrecondition, "process is not stopped")
	}
	c.leftover = false
	return &tasks.DeleteResponse{ExitStatus: 137}, nil
}
