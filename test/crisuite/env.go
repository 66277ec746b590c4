// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits for one test, one wait and one clean-up, generous for a busy machine.
const (
	testLimit    = 90 * time.Second
	waitLimit    = time.Minute
	cleanLimit   = 60 * time.Second
	pollInterval = 20 * time.Millisecond
)

// env is what each test works with.
type env struct {
	*testing.T
	target  Target
	ctx     context.Context
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	tasks   tasks.TasksClient
}

func newEnv(t *testing.T, target Target) *env {
	t.Helper()
	conn := target.Conn(t)
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	t.Cleanup(cancel)
	return &env{
		T: t, target: target, ctx: ctx,
		runtime: runtimeapi.NewRuntimeServiceClient(conn),
		images:  runtimeapi.NewImageServiceClient(conn),
		tasks:   tasks.NewTasksClient(conn),
	}
}

// ok ends the test if a call failed.
func (e *env) ok(what string, err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

// code ends the test unless err has one of the codes.
func (e *env) code(what string, err error, want ...codes.Code) {
	e.Helper()
	for _, c := range want {
		if status.Code(err) == c {
			return
		}
	}
	e.Fatalf("%s: got code %v (%v), want %v", what, status.Code(err), err, want)
}

// refused ends the test unless err is the runtime's own refusal: an error, but
// not one of those by which a caller knows that asking again may help.
func (e *env) refused(what string, err error) {
	e.Helper()
	switch status.Code(err) {
	case codes.OK:
		e.Fatalf("%s: succeeded, want an error", what)
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unimplemented:
		e.Fatalf("%s: got %v, want the runtime's refusal", what, err)
	}
}

// until polls cond until it holds.
func (e *env) until(what string, cond func() bool) {
	e.Helper()
	err := wait.PollUntilContextTimeout(e.ctx, pollInterval, waitLimit, true,
		func(context.Context) (bool, error) { return cond(), nil })
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

var serial atomic.Uint64

// unique makes a name no other test and no earlier run has used.
func unique(prefix string) string {
	return fmt.Sprintf("%s-%x-%d", prefix, time.Now().UnixNano(), serial.Add(1))
}

// pod is a sandbox of this test.
type pod struct {
	*env
	id     string
	config *runtimeapi.PodSandboxConfig
	logs   string
}

// podConfig is a pod of its own name.
func (e *env) podConfig() *runtimeapi.PodSandboxConfig {
	uid := unique("uid")
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "crisuite", Uid: uid},
		Hostname:     "crisuite-host",
		LogDirectory: e.TempDir(),
		Labels:       map[string]string{"crisuite": "yes", "uid": uid},
		Annotations:  map[string]string{"example.com/note": "kept, with spaces and ünicode"},
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: e.target.CgroupParent},
	}
}

// pod runs a sandbox that is removed when the test ends.
func (e *env) pod() *pod {
	e.Helper()
	return e.runPod(e.podConfig())
}

func (e *env) runPod(config *runtimeapi.PodSandboxConfig) *pod {
	e.Helper()
	resp, err := e.runtime.RunPodSandbox(e.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	e.ok("RunPodSandbox", err)
	p := &pod{env: e, id: resp.GetPodSandboxId(), config: config, logs: config.GetLogDirectory()}
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
		defer cancel()
		if _, err := e.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			e.Errorf("clean up: RemovePodSandbox: %v", err)
		}
	})
	return p
}

func (p *pod) status() *runtimeapi.PodSandboxStatus {
	p.Helper()
	resp, err := p.runtime.PodSandboxStatus(p.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	p.ok("PodSandboxStatus", err)
	return resp.GetStatus()
}

// ctr is a container of this test.
type ctr struct {
	*pod
	id     string
	config *runtimeapi.ContainerConfig
}

// shellConfig is a container that runs a shell script.
func (e *env) shellConfig(script string) *runtimeapi.ContainerConfig {
	return e.commandConfig("sh", "-c", script)
}

func (e *env) commandConfig(command ...string) *runtimeapi.ContainerConfig {
	name := unique("ctr")
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: name},
		Image:       &runtimeapi.ImageSpec{Image: e.target.Images.Shell},
		Command:     command,
		LogPath:     filepath.Join(name, "0.log"),
		Labels:      map[string]string{"container": name},
		Annotations: map[string]string{"example.com/hash": "1234"},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuShares: 102, MemoryLimitInBytes: 64 << 20},
			// The process is the first of its PID namespace, as in a pod by default.
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
}

func (p *pod) tryCreate(config *runtimeapi.ContainerConfig) (string, error) {
	resp, err := p.runtime.CreateContainer(p.ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, Config: config, SandboxConfig: p.config,
	})
	return resp.GetContainerId(), err
}

func (p *pod) create(config *runtimeapi.ContainerConfig) *ctr {
	p.Helper()
	p.havePulled(config.GetImage().GetImage())
	id, err := p.tryCreate(config)
	p.ok("CreateContainer", err)
	return &ctr{pod: p, id: id, config: config}
}

// start creates and starts a container with a shell script.
func (p *pod) start(script string) *ctr {
	p.Helper()
	c := p.create(p.shellConfig(script))
	p.ok("StartContainer", c.start())
	return c
}

// server is a running container that exits with 7 on TERM, ready for it.
func (p *pod) server() *ctr {
	p.Helper()
	c := p.start("trap 'exit 7' TERM; echo ready; while true; do sleep 0.05; done")
	c.logged("ready")
	return c
}

func (c *ctr) start() error {
	_, err := c.runtime.StartContainer(c.ctx, &runtimeapi.StartContainerRequest{ContainerId: c.id})
	return err
}

func (c *ctr) stop(timeout int64) error {
	_, err := c.runtime.StopContainer(c.ctx, &runtimeapi.StopContainerRequest{ContainerId: c.id, Timeout: timeout})
	return err
}

func (c *ctr) remove() error {
	_, err := c.runtime.RemoveContainer(c.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.id})
	return err
}

func (c *ctr) tryStatus() (*runtimeapi.ContainerStatus, error) {
	resp, err := c.runtime.ContainerStatus(c.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.id})
	return resp.GetStatus(), err
}

func (c *ctr) status() *runtimeapi.ContainerStatus {
	c.Helper()
	st, err := c.tryStatus()
	c.ok("ContainerStatus", err)
	return st
}

// exited waits for the end of the process and returns the last status.
func (c *ctr) exited() *runtimeapi.ContainerStatus {
	c.Helper()
	var st *runtimeapi.ContainerStatus
	c.until("container does not exit", func() bool {
		st = c.status()
		return st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return st
}

func (c *ctr) logFile() string { return filepath.Join(c.logs, c.config.GetLogPath()) }

// logged waits until the log has a line with that text.
func (c *ctr) logged(text string) {
	c.Helper()
	c.until("log has no line "+text, func() bool {
		data, err := os.ReadFile(c.logFile())
		return err == nil && strings.Contains(string(data), " "+text+"\n")
	})
}

func (c *ctr) exec(timeout int64, cmd ...string) (*runtimeapi.ExecSyncResponse, error) {
	return c.runtime.ExecSync(c.ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.id, Cmd: cmd, Timeout: timeout})
}

// havePulled puts an image on the node unless it is there.
func (e *env) havePulled(ref string) {
	e.Helper()
	st, err := e.images.ImageStatus(e.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	e.ok("ImageStatus", err)
	if st.GetImage() == nil {
		_, err := e.images.PullImage(e.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		e.ok("PullImage", err)
	}
}
