// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"context"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// neverEnds runs until it is killed.
var neverEnds = []string{"sleep", "1000"}

// stubborn is a running container on which TERM has no effect, as its process
// is PID 1 without a handler. It is awaited: for a moment after StartContainer
// the process may still be the runtime's own, which TERM ends.
func (p *pod) stubborn() *ctr {
	p.Helper()
	c := p.start("echo ready; sleep 1000")
	c.logged("ready")
	return c
}

var stopTests = []test{
	{"sends TERM and waits for the end", func(e *env) {
		c := e.pod().server()
		began := time.Now()
		e.ok("StopContainer", c.stop(60))
		if took := time.Since(began); took > 20*time.Second {
			e.Errorf("took %v", took)
		}
		if st := c.exited(); st.GetExitCode() != 7 || st.GetReason() != "Error" {
			e.Errorf("code %d, reason %q", st.GetExitCode(), st.GetReason())
		}
	}},
	{"an orderly end after TERM is Completed", func(e *env) {
		c := e.pod().start("trap 'exit 0' TERM; echo ready; while true; do sleep 0.05; done")
		c.logged("ready")
		e.ok("StopContainer", c.stop(60))
		if st := c.exited(); st.GetExitCode() != 0 || st.GetReason() != "Completed" {
			e.Errorf("code %d, reason %q", st.GetExitCode(), st.GetReason())
		}
	}},
	{"kills after the timeout", func(e *env) {
		c := e.pod().stubborn()
		began := time.Now()
		e.ok("StopContainer", c.stop(1))
		if took := time.Since(began); took < time.Second || took > 20*time.Second {
			e.Errorf("took %v", took)
		}
		// The answer means that it has ended: no waiting here.
		if st := c.status(); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 137 || st.GetReason() != "Error" {
			e.Errorf("got %v", st)
		}
	}},
	{"with no timeout kills at once", func(e *env) {
		c := e.pod().server()
		e.ok("StopContainer", c.stop(0))
		if st := c.status(); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 137 {
			e.Errorf("got %v", st)
		}
	}},
	{"a second stop shortens the first", func(e *env) {
		c := e.pod().stubborn()
		first := make(chan error, 1)
		go func() { first <- c.stop(80) }()
		began := time.Now()
		e.ok("second StopContainer", c.stop(1))
		if took := time.Since(began); took > 20*time.Second {
			e.Errorf("took %v", took)
		}
		e.ok("first StopContainer", <-first)
	}},
	{"of what does not run does nothing", func(e *env) {
		p := e.pod()
		c := p.create(p.commandConfig("true"))
		e.ok("StopContainer of a created one", c.stop(1))
		if st := c.status(); st.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
			e.Errorf("created one is %v", st.GetState())
		}
		e.ok("StartContainer", c.start())
		st := c.exited()
		e.ok("StopContainer of an exited one", c.stop(1))
		if after := c.status(); after.GetFinishedAt() != st.GetFinishedAt() || after.GetExitCode() != st.GetExitCode() {
			e.Errorf("exited %v, after stop %v", st, after)
		}
	}},
	{"of an unknown one does no harm", func(e *env) {
		c := &ctr{pod: &pod{env: e}, id: "ffffffffffffffff"}
		// containerd 1.6 says NotFound, later ones nothing.
		e.code("StopContainer", c.stop(1), codes.OK, codes.NotFound)
	}},
	{"whose caller leaves does not kill", func(e *env) {
		c := e.pod().stubborn()
		ctx, cancel := context.WithTimeout(e.ctx, 300*time.Millisecond)
		defer cancel()
		_, err := e.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.id, Timeout: 80})
		e.code("StopContainer", err, codes.DeadlineExceeded)
		if st := c.status(); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			e.Errorf("state %v", st.GetState())
		}
		e.ok("StopContainer", c.stop(0))
	}},
}

var removeTests = []test{
	{"takes created, running and exited ones, and may be repeated", func(e *env) {
		p := e.pod()
		exited := p.start("exit 0")
		exited.exited()
		for state, c := range map[string]*ctr{"created": p.create(p.commandConfig("true")), "running": p.stubborn(), "exited": exited} {
			for range 2 {
				e.ok("RemoveContainer of a "+state+" one", c.remove())
			}
			_, err := c.tryStatus()
			e.code("ContainerStatus of a removed one", err, codes.NotFound)
			e.code("StartContainer of a removed one", c.start(), codes.NotFound)
		}
		resp, err := e.runtime.ListContainers(e.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.id}})
		e.ok("ListContainers", err)
		if len(resp.GetContainers()) != 0 {
			e.Errorf("left: %v", resp.GetContainers())
		}
		if st := p.status(); st.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			e.Errorf("the sandbox is %v", st.GetState())
		}
	}},
	{"leaves the log", func(e *env) {
		c := e.pod().start("echo here")
		c.exited()
		c.logged("here")
		e.ok("RemoveContainer", c.remove())
		c.logged("here")
	}},
	// containerd's own API, on the CRI's socket, ends what its CRI service does not know of.
	{"is refused for one with a task that the CRI does not know, until that has been deleted", func(e *env) {
		p := e.pod()
		c := p.start("exit 0")
		c.exited()
		e.target.LeaveTask(e, c.id)
		e.code("RemoveContainer", c.remove(), codes.FailedPrecondition)
		e.ok("StopContainer", c.stop(0))
		e.code("RemoveContainer of a stopped one", c.remove(), codes.FailedPrecondition)
		_, err := e.runtime.StopPodSandbox(e.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
		e.ok("StopPodSandbox", err)
		_, err = e.runtime.RemovePodSandbox(e.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
		e.code("RemovePodSandbox", err, codes.FailedPrecondition)
		ctx := metadata.AppendToOutgoingContext(e.ctx, "containerd-namespace", "k8s.io")
		_, err = e.tasks.Kill(ctx, &tasks.KillRequest{ContainerID: c.id, Signal: uint32(syscall.SIGKILL), All: true})
		e.ok("Kill", err)
		// The CRI service sees the end of the task as well, and may delete it first.
		_, err = e.tasks.Wait(ctx, &tasks.WaitRequest{ContainerID: c.id})
		e.code("Wait", err, codes.OK, codes.NotFound)
		_, err = e.tasks.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: c.id})
		e.code("Delete", err, codes.OK, codes.NotFound)
		_, err = e.tasks.Kill(ctx, &tasks.KillRequest{ContainerID: c.id, Signal: uint32(syscall.SIGKILL), All: true})
		e.code("Kill of a deleted one", err, codes.NotFound)
		e.ok("RemoveContainer", c.remove())
	}},
}
