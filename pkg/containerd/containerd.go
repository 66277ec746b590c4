// SPDX-License-Identifier: Apache-2.0

// Package containerd removes containers that containerd's CRI service cannot remove.
//
// A StartContainer whose caller dies at one moment of its course leaves containerd (seen
// with 2.4.2) with a task, which is the process of the container before it is started, of
// which its CRI service does not know. For the CRI the container has exited, each removal of
// it, or of its sandbox, fails with "cannot delete running task", and no call of the CRI ends
// the task. containerd serves its own API on the same socket, and that can.
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

// Remove is RemoveContainer of the CRI, which ends a task that the CRI does not know of and
// is refused for. ended says so; it is nil, or what the first removal was refused with.
func Remove(ctx context.Context, id string, call Caller) (ended, err error) {
	remove := func() error {
		return call(ctx, runtimeapi.RuntimeService_RemoveContainer_FullMethodName,
			&runtimeapi.RemoveContainerRequest{ContainerId: id}, &runtimeapi.RemoveContainerResponse{})
	}
	refused := remove()
	if status.Code(refused) != codes.FailedPrecondition {
		return nil, refused
	}
	switch err := endTask(ctx, id, call); status.Code(err) {
	case codes.OK:
		return refused, remove()
	case codes.Unimplemented: // not containerd
		return nil, refused
	default:
		return nil, status.Errorf(codes.FailedPrecondition, "%s; and its task: %v", status.Convert(refused).Message(), err)
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
