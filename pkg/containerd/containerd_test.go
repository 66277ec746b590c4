// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/fakecri"
)

// TestRemove: a container with a task of which the CRI does not know is removed with that
// task. (test/crisuite has what containerd does.)
func TestRemove(t *testing.T) {
	refusal := func(code codes.Code, text string) func(*fakecri.Runtime) {
		return func(rt *fakecri.Runtime) { rt.Fail(fakecri.Match{Method: "Kill"}, -1, status.Error(code, text)) }
	}
	for _, test := range []struct {
		name  string
		task  bool
		fault func(*fakecri.Runtime)
		ended bool
		want  codes.Code
		says  string
	}{
		{name: "without a task"},
		{name: "with one", task: true, ended: true},
		{name: "with one on another runtime", task: true, fault: refusal(codes.Unimplemented, "unknown service"), want: codes.FailedPrecondition, says: "cannot delete running task"},
		{name: "with one that does not end", task: true, fault: refusal(codes.Internal, "no shim"), want: codes.FailedPrecondition, says: "and its task: Kill: rpc error: code = Internal desc = no shim"},
	} {
		t.Run(test.name, func(t *testing.T) {
			rt := fakecri.Start(t, fakecri.Config{})
			conn := rt.Conn(t)
			id := ended(t, rt, runtimeapi.NewRuntimeServiceClient(conn))
			if test.task {
				rt.LeaveTask(id)
			}
			if test.fault != nil {
				test.fault(rt)
			}
			refused, err := Remove(t.Context(), id, func(ctx context.Context, method string, request, reply any) error {
				return conn.Invoke(ctx, method, request, reply)
			})
			if status.Code(err) != test.want || test.says != "" && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %v with %q", err, test.want, test.says)
			}
			if (refused != nil) != test.ended {
				t.Errorf("ended a task for %v, want %v", refused, test.ended)
			}
			if left := len(rt.Containers()); (left == 0) != (test.want == codes.OK) {
				t.Errorf("%d containers are left", left)
			}
		})
	}
}

// ended is the ID of a container that has ended.
func ended(t *testing.T, rt *fakecri.Runtime, runtime runtimeapi.RuntimeServiceClient) string {
	t.Helper()
	rt.Preload(fakecri.Image{Ref: "example/app:v1"})
	sandbox, err := runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "uid"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.GetPodSandboxId(),
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "example/app:v1"}, Command: []string{"sleep", "1000"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
		t.Fatal(err)
	}
	return c.GetContainerId()
}
