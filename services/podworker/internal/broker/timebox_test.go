// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/test/fakecri"
)

// reaperFunc ends commands, or is away when nil.
type reaperFunc func(container string, command []string) error

func (f reaperFunc) There() bool { return f != nil }

func (f reaperFunc) EndExec(_ context.Context, container string, command []string, began time.Duration) error {
	if began <= 0 {
		return rpc.Invalid.Errorf("began at %s", began)
	}
	return f(container, command)
}

// boxed is a broker with a reaper, and a running container.
func boxed(t *testing.T, r Reaper) (rt *fakecri.Runtime, rc runtimeapi.RuntimeServiceClient, id string) {
	t.Helper()
	rt = fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody(), r)
	return rt, runtimeapi.NewRuntimeServiceClient(client(t, b)), running(t, rt)
}

// running is the ID of a container that runs.
func running(t *testing.T, rt *fakecri.Runtime) (id string) {
	t.Helper()
	rc := runtimeapi.NewRuntimeServiceClient(rt.Conn(t))
	made, err := rc.RunPodSandbox(t.Context(), sandboxRequest("web"))
	if err != nil {
		t.Fatal(err)
	}
	rt.Preload(fakecri.Image{Ref: "example/app:v1"})
	c, err := rc.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: made.GetPodSandboxId(),
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "example/app:v1"}, Command: []string{"sleep", "1000"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rc.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
		t.Fatal(err)
	}
	return c.GetContainerId()
}

// limits are the timeouts the runtime was given for commands.
func limits(rt *fakecri.Runtime) (all []int64) {
	for _, c := range rt.Calls(fakecri.Match{Method: "ExecSync"}) {
		all = append(all, c.Request.(*runtimeapi.ExecSyncRequest).GetTimeout())
	}
	return all
}

func TestCommandIsEndedInTime(t *testing.T) {
	command := []string{"sh", "-c", "while [ ! -f /tmp/stop ]; do sleep 0.05; done"}
	var container string
	var killed []string
	var stop func()
	rt, rc, id := boxed(t, reaperFunc(func(c string, command []string) error {
		container, killed = c, command
		stop() // as a killed command would, it ends, and the runtime has an exit code
		return nil
	}))
	stop = func() {
		if _, err := runtimeapi.NewRuntimeServiceClient(rt.Conn(t)).ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
			ContainerId: id, Cmd: []string{"sh", "-c", "echo > /tmp/stop"}, Timeout: 60,
		}); err != nil {
			t.Error(err)
		}
	}
	resp, err := rc.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: 1})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v %v, want DeadlineExceeded", resp, err)
	}
	if container != id || !slices.Equal(killed, command) {
		t.Errorf("ended %q of %s", killed, container)
	}
	if got := limits(rt); !slices.Contains(got, 2) {
		t.Errorf("the runtime was given %v s: want a second more than the caller's 1", got)
	}
}

func TestRuntimeEndsWhatNobodyElseDoes(t *testing.T) {
	for name, failure := range map[string]error{
		"not found": rpc.NotFound.Errorf("no such command"), "ambiguous": rpc.Conflict.Errorf("several"), "away": rpc.Unavailable.Errorf("nobody"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, rc, id := boxed(t, reaperFunc(func(string, []string) error { return failure }))
			_, err := rc.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sleep", "1000"}, Timeout: 1})
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%v, want the runtime's DeadlineExceeded", err)
			}
		})
	}
}

func TestCommandsThatNeedNoReaper(t *testing.T) {
	never := reaperFunc(func(string, []string) error {
		t.Error("a command that had ended was to be ended")
		return nil
	})
	for name, tc := range map[string]struct {
		reaper Reaper
		limit  int64
		given  int64
	}{
		"in time": {never, 60, 61}, "without an end": {never, 0, 0}, "nobody there": {reaperFunc(nil), 60, 60}, "none": {nil, 60, 60},
	} {
		t.Run(name, func(t *testing.T) {
			rt, rc, id := boxed(t, tc.reaper)
			resp, err := rc.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", "echo out; exit 3"}, Timeout: tc.limit})
			if err != nil || resp.GetExitCode() != 3 || string(resp.GetStdout()) != "out\n" {
				t.Errorf("%v, %v", resp, err)
			}
			if got := limits(rt); !slices.Equal(got, []int64{tc.given}) {
				t.Errorf("the runtime was given %v s, want %d", got, tc.given)
			}
			_, err = rc.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: "no-such", Cmd: []string{"true"}, Timeout: tc.limit})
			if status.Code(err) != codes.NotFound {
				t.Errorf("of an unknown container: %v", err)
			}
		})
	}
}
