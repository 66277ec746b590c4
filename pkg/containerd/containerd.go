// SPDX-License-Identifier: Apache-2.0

// Package containerd removes containers that containerd's CRI service cannot remove.
//
// If the caller of StartContainer dies just after containerd has created the task of the
// container (the process that is to be started), the task stays, but the CRI service does not
// know of it (seen with 2.4.2). The CRI then reports the container as exited, every removal of
// the container or its sandbox fails with "cannot delete running task", and no CRI call ends the
// task. containerd's own API, which is served on the same socket, does.
//
// The package keeps nothing. On another runtime it changes nothing: the first error stands.
package containerd

import (
	"context"
	"fmt"
	"syscall"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Caller makes one unary call of the runtime, as [google.golang.org/grpc.ClientConn.Invoke]
// does.
type Caller func(ctx context.Context, method string, request, reply any) error

// namespace is that of everything of the CRI in containerd.
const namespace = "k8s.io"

// Remove removes a container with RemoveContainer of the CRI. If the runtime refuses that because
// of a task that its CRI service does not know, Remove ends the task and tries once more; refused
// is then the error of the first try, and nil otherwise.
func Remove(ctx context.Context, id string, call Caller) (refused, err error) {
	remove := func() error {
		return call(ctx, runtimeapi.RuntimeService_RemoveContainer_FullMethodName,
			&runtimeapi.RemoveContainerRequest{ContainerId: id}, &runtimeapi.RemoveContainerResponse{})
	}
	first := remove()
	if status.Code(first) != codes.FailedPrecondition {
		return nil, first
	}
	switch err := endTask(ctx, id, call); status.Code(err) {
	case codes.OK:
		return first, remove()
	case codes.Unimplemented: // not containerd
		return nil, first
	default:
		return nil, status.Errorf(codes.FailedPrecondition, "%s; and its task: %v", status.Convert(first).Message(), err)
	}
}

// endTask kills and deletes the task of a container, if there is one.
func endTask(ctx context.Context, id string, call Caller) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	for _, step := range []struct {
		method         string
		request, reply any
	}{
		{"Kill", &tasks.KillRequest{ContainerID: id, Signal: uint32(syscall.SIGKILL), All: true}, &emptypb.Empty{}},
		{"Wait", &tasks.WaitRequest{ContainerID: id}, &tasks.WaitResponse{}},
		{"Delete", &tasks.DeleteTaskRequest{ContainerID: id}, &tasks.DeleteResponse{}},
	} {
		err := call(ctx, "/containerd.services.tasks.v1.Tasks/"+step.method, step.request, step.reply)
		if err != nil && status.Code(err) != codes.NotFound { // not found: it has ended, or is deleted
			return fmt.Errorf("%s: %w", step.method, err)
		}
	}
	return nil
}
