// SPDX-License-Identifier: Apache-2.0

package fakecri_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/fakecri"
)

// node is a fake and its clients.
type node struct {
	*testing.T
	*fakecri.Runtime
	ctx context.Context
	rc  runtimeapi.RuntimeServiceClient
	ic  runtimeapi.ImageServiceClient
}

func start(t *testing.T, cfg fakecri.Config) *node {
	t.Helper()
	rt := fakecri.Start(t, cfg)
	conn := rt.Conn(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return &node{
		T: t, Runtime: rt, ctx: ctx,
		rc: runtimeapi.NewRuntimeServiceClient(conn),
		ic: runtimeapi.NewImageServiceClient(conn),
	}
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) code(err error, want codes.Code) {
	n.Helper()
	if got := status.Code(err); got != want {
		n.Fatalf("code %v (%v), want %v", got, err, want)
	}
}

func (n *node) waitFor(what string, cond func() bool) {
	n.Helper()
	if err := n.WaitFor(n.ctx, cond); err != nil {
		n.Fatalf("%s: %v", what, err)
	}
}

func (n *node) pull(ref string) (string, error) {
	resp, err := n.ic.PullImage(n.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return resp.GetImageRef(), err
}

func sandboxConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Labels:   map[string]string{"pod": name},
	}
}

func (n *node) tryRun(name string) (string, error) {
	resp, err := n.rc.RunPodSandbox(n.ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig(name)})
	return resp.GetPodSandboxId(), err
}

func (n *node) run(name string) string {
	n.Helper()
	id, err := n.tryRun(name)
	n.must(err)
	return id
}

// create makes a container named "main" of an image on the node.
func (n *node) create(sandbox, image string, command ...string) string {
	n.Helper()
	n.Preload(fakecri.Image{Ref: image})
	resp, err := n.rc.CreateContainer(n.ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
			Image:    &runtimeapi.ImageSpec{Image: image}, Command: command,
		},
	})
	n.must(err)
	return resp.GetContainerId()
}

func (n *node) start(id string) error {
	_, err := n.rc.StartContainer(n.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

func (n *node) stop(id string, timeout int64) error {
	_, err := n.rc.StopContainer(n.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout})
	return err
}

// pod is a sandbox with one running container.
func (n *node) pod(name, image string, command ...string) (sandbox, ctr string) {
	n.Helper()
	sandbox = n.run(name)
	ctr = n.create(sandbox, image, command...)
	n.must(n.start(ctr))
	return sandbox, ctr
}

// told is what the runtime says of a container; the node's methods tell the truth.
func (n *node) told(id string) *runtimeapi.ContainerStatus {
	n.Helper()
	resp, err := n.rc.ContainerStatus(n.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	n.must(err)
	return resp.GetStatus()
}

func (n *node) toldSandbox(id string) *runtimeapi.PodSandboxStatus {
	n.Helper()
	resp, err := n.rc.PodSandboxStatus(n.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	n.must(err)
	return resp.GetStatus()
}

func (n *node) listed() []*runtimeapi.Container {
	n.Helper()
	resp, err := n.rc.ListContainers(n.ctx, &runtimeapi.ListContainersRequest{})
	n.must(err)
	return resp.GetContainers()
}

// ended waits for a container's end and tells the truth about it.
func (n *node) ended(pod string) *runtimeapi.ContainerStatus {
	n.Helper()
	var st *runtimeapi.ContainerStatus
	n.waitFor(pod+" does not end", func() bool {
		st = n.Container(pod, "main")
		return st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return st
}

// events opens a stream and hands over what comes.
func (n *node) events() <-chan *runtimeapi.ContainerEventResponse {
	n.Helper()
	before := n.EventStreams()
	stream, err := n.rc.GetContainerEvents(n.ctx, &runtimeapi.GetEventsRequest{})
	n.must(err)
	n.waitFor("the stream does not begin", func() bool { return n.EventStreams() > before })
	out := make(chan *runtimeapi.ContainerEventResponse, 100)
	go func() {
		defer close(out)
		for {
			ev, err := stream.Recv()
			if err != nil {
				return
			}
			out <- ev
		}
	}()
	return out
}
