// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// giveUp makes a call about a pod and cancels it at some point of its course: where
// the runtime can be told, before it has done anything, with the work still to come;
// else after a time. It reports whether the call succeeded before that.
func (e *env) giveUp(method, pod string, after time.Duration, call func(context.Context) error) (succeeded bool) {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	if e.target.Linger == nil {
		timer := time.AfterFunc(after, cancel)
		defer timer.Stop()
	} else {
		caught, release := e.target.Linger(e, method, pod)
		defer release()
		go func() {
			caught()
			cancel()
		}()
	}
	err := call(ctx)
	e.code(method+" that was cancelled", err, codes.OK, codes.Canceled)
	return err == nil
}

// points are how long after its beginning a call is cancelled.
var points = []time.Duration{0, 5 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond}

// cancelTests: a cancelled call tells nothing of what becomes of it. What it was to
// make may appear in a later list, complete and with its labels, or never; until
// then nothing shows it. Who cancels has to look, and can remove what he finds.
var cancelTests = []test{
	{"a sandbox whose run was cancelled is listed if it comes, and can be removed", func(e *env) {
		for _, after := range points {
			config := e.podConfig()
			config.Metadata.Name = unique("late")
			list := func(ctx context.Context) []*runtimeapi.PodSandbox {
				resp, err := e.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
					Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"uid": config.Labels["uid"]}},
				})
				e.ok("ListPodSandbox", err)
				return resp.GetItems()
			}
			remove := func(ctx context.Context) {
				for _, sb := range list(ctx) {
					if !proto.Equal(sb.GetMetadata(), config.GetMetadata()) {
						e.Errorf("listed as %v", sb)
					}
					_, err := e.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb.GetId()})
					e.ok("StopPodSandbox", err)
					_, err = e.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb.GetId()})
					e.ok("RemovePodSandbox", err)
				}
			}
			e.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
				defer cancel()
				remove(ctx)
			})
			succeeded := e.giveUp("RunPodSandbox", config.GetMetadata().GetName(), after, func(ctx context.Context) error {
				_, err := e.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
				return err
			})
			if succeeded || e.target.Linger != nil {
				e.until("the sandbox does not come", func() bool { return len(list(e.ctx)) == 1 })
			}
			remove(e.ctx)
			next := proto.CloneOf(config)
			next.Metadata.Attempt++
			next.Labels["uid"] = unique("uid")
			e.runPod(next)
		}
	}},
	{"a container whose creation was cancelled is listed if it comes, and can be removed", func(e *env) {
		for _, after := range points {
			sandbox := e.podConfig()
			sandbox.Metadata.Name = unique("late")
			p := e.runPod(sandbox)
			config := e.shellConfig("exit 0")
			e.havePulled(config.GetImage().GetImage())
			list := func() []*runtimeapi.Container {
				resp, err := e.runtime.ListContainers(e.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.id}})
				e.ok("ListContainers", err)
				return resp.GetContainers()
			}
			succeeded := e.giveUp("CreateContainer", sandbox.GetMetadata().GetName(), after, func(ctx context.Context) error {
				_, err := e.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config})
				return err
			})
			if succeeded || e.target.Linger != nil {
				e.until("the container does not come", func() bool { return len(list()) == 1 })
			}
			for _, c := range list() {
				if c.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED || !proto.Equal(c.GetMetadata(), config.GetMetadata()) {
					e.Errorf("listed as %v", c)
				}
				_, err := e.runtime.RemoveContainer(e.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.GetId()})
				e.ok("RemoveContainer", err)
			}
			next := proto.CloneOf(config)
			next.Metadata.Attempt++
			if st := p.create(next).status(); st.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
				e.Errorf("the next one: %v", st)
			}
		}
	}},
	{"a container whose start was cancelled runs, or can be removed", func(e *env) {
		for _, after := range points {
			sandbox := e.podConfig()
			sandbox.Metadata.Name = unique("late")
			p := e.runPod(sandbox)
			c := p.create(p.shellConfig("sleep 1000"))
			succeeded := e.giveUp("StartContainer", sandbox.GetMetadata().GetName(), after, func(ctx context.Context) error {
				_, err := e.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.id})
				return err
			})
			if succeeded || e.target.Linger != nil {
				e.until("the container does not run", func() bool { return c.status().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING })
			}
			// A removal is refused while the start goes on.
			e.until("it is not removed", func() bool {
				if err := c.stop(0); err != nil {
					return false
				}
				return c.remove() == nil
			})
		}
	}},
}
