// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/fakecri/internal/shell"
)

// container is one container; Runtime.mu guards it except for log and files,
// which guard themselves.
type container struct {
	id      string
	seq     uint64
	name    string // reserved
	sandbox *sandbox
	config  *runtimeapi.ContainerConfig
	image   *imageRecord

	state                      runtimeapi.ContainerState
	starting                   bool          // a start is under way, and a removal refused
	leftover                   bool          // it has a task of which the CRI does not know (LeaveTask)
	task                       chan struct{} // closed when that has ended
	created, started, finished time.Time
	exitCode                   int32
	reason, message            string
	resources                  *runtimeapi.LinuxContainerResources
	stats                      *Stats

	files   *files
	logPath string
	log     *logFile          // nil until started, and without a log path
	signals chan shell.Signal // to the process
	sent    []string          // all signals ever sent
	kill    func()            // ends the process
	done    chan struct{}     // closed when it has exited
	out     *fanout           // nil until started, as err
	err     *fanout
	stdin   *io.PipeWriter // nil unless the configuration has one
}

func (s *runtimeServer) CreateContainer(ctx context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	config := proto.CloneOf(req.GetConfig())
	sb, ok := byID(r.sandboxes, req.GetPodSandboxId())
	if !ok {
		return nil, notFound("failed to find sandbox id %q", req.GetPodSandboxId())
	}
	if sb.state != runtimeapi.PodSandboxState_SANDBOX_READY {
		if r.cfg.Flavor == Containerd16 {
			return nil, notFound("failed to get sandbox container task: no running task found: task %s not found", sb.id)
		}
		return nil, failure("sandbox container %q is not running", sb.id)
	}
	if config.GetMetadata() == nil {
		return nil, failure("container config must include metadata")
	}
	id, seq := r.newID()
	name := containerName(config.GetMetadata(), sb.config.GetMetadata())
	if err := r.reserve(name, id); err != nil {
		return nil, r.taken("failed to reserve container name %q: %v", name, err)
	}
	r.linger(ctx)
	img := r.resolveImage(config.GetImage().GetImage())
	if img == nil {
		delete(r.names, name)
		return nil, notFound("failed to resolve image %q", config.GetImage().GetImage())
	}
	c := &container{
		id: id, seq: seq, name: name, sandbox: sb, config: config, image: img,
		state:     runtimeapi.ContainerState_CONTAINER_CREATED,
		created:   r.now(),
		resources: proto.CloneOf(config.GetLinux().GetResources()),
		files:     newFiles(sb, config),
		signals:   make(chan shell.Signal, 16),
		done:      make(chan struct{}),
	}
	if dir := sb.config.GetLogDirectory(); dir != "" && config.GetLogPath() != "" {
		c.logPath = filepath.Join(dir, config.GetLogPath())
	}
	r.containers[id] = c
	r.emit(id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, sb)
	r.notify()
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

func (s *runtimeServer) StartContainer(ctx context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := byID(r.containers, req.GetContainerId())
	if !ok {
		return nil, notFound("an error occurred when try to find container %q", req.GetContainerId())
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED || c.starting {
		return nil, failure("failed to set starting state for container %q: container is in %s state", c.id, c.state)
	}
	if c.sandbox.state != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil, failure("sandbox container %q is not running", c.sandbox.id)
	}
	c.starting = true
	r.linger(ctx)
	c.starting = false
	if err := r.launch(c); err != nil {
		c.state = runtimeapi.ContainerState_CONTAINER_EXITED
		c.exitCode, c.reason, c.message = 128, "StartError", err.Error()
		c.finished = r.now()
		close(c.done)
		r.notify() // and no event, as in containerd: nothing has run
		return nil, failure("%s", c.message)
	}
	r.emit(c.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.sandbox)
	r.notify()
	return &runtimeapi.StartContainerResponse{}, nil
}

func (s *runtimeServer) StopContainer(ctx context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	r := s.r
	r.mu.Lock()
	c, ok := byID(r.containers, req.GetContainerId())
	if !ok {
		r.mu.Unlock()
		if r.cfg.Flavor == Containerd16 {
			return nil, notFound("an error occurred when try to find container %q", req.GetContainerId())
		}
		return &runtimeapi.StopContainerResponse{}, nil
	}
	running := c.state == runtimeapi.ContainerState_CONTAINER_RUNNING
	if running && req.GetTimeout() > 0 {
		sig := "TERM"
		if s := c.config.GetStopSignal(); s != runtimeapi.Signal_RUNTIME_DEFAULT {
			sig = strings.TrimPrefix(s.String(), "SIG")
		}
		r.signal(c, sig)
	}
	r.mu.Unlock()
	if !running {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if req.GetTimeout() > 0 {
		t := r.cfg.Clock.NewTimer(time.Duration(req.GetTimeout()) * time.Second)
		defer t.Stop()
		r.poke() // the timer is set
		select {
		case <-c.done:
			return &runtimeapi.StopContainerResponse{}, nil
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-t.C():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killContainer(c)
	return &runtimeapi.StopContainerResponse{}, nil
}

func (s *runtimeServer) RemoveContainer(_ context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := byID(r.containers, req.GetContainerId()); ok {
		if err := removable(c); err != nil {
			return nil, err
		}
		r.killContainer(c)
		r.removeContainer(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func removable(c *container) error {
	if c.starting {
		return failure("failed to set removing state for container %q: container is in starting state, can't be removed", c.id)
	}
	if c.leftover {
		return status.Errorf(codes.FailedPrecondition, "failed to delete containerd container %q: cannot delete running task %s: failed precondition", c.id, c.id)
	}
	return nil
}

// removeContainer forgets a container that does not run.
func (r *Runtime) removeContainer(c *container) {
	delete(r.containers, c.id)
	delete(r.names, c.name)
	r.emit(c.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.sandbox)
	r.notify()
}

func (s *runtimeServer) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := byID(r.containers, req.GetContainerId())
	if !ok {
		return nil, notFound("an error occurred when try to find container %q", req.GetContainerId())
	}
	resp := &runtimeapi.ContainerStatusResponse{Status: r.containerStatus(c, true)}
	if req.GetVerbose() {
		resp.Info = info(map[string]any{"sandboxID": c.sandbox.id, "pid": c.seq, "config": c.config})
	}
	return resp, nil
}

func (r *Runtime) containerStatus(c *container, lies bool) *runtimeapi.ContainerStatus {
	st := &runtimeapi.ContainerStatus{
		Id:          c.id,
		Metadata:    proto.CloneOf(c.config.GetMetadata()),
		State:       c.state,
		CreatedAt:   c.created.UnixNano(),
		ExitCode:    c.exitCode,
		Image:       &runtimeapi.ImageSpec{Image: c.image.name()},
		ImageRef:    c.image.reference(),
		Reason:      c.reason,
		Message:     c.message,
		Labels:      c.config.GetLabels(),
		Annotations: c.config.GetAnnotations(),
		LogPath:     c.logPath,
		Resources:   &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{}},
	}
	for _, m := range c.config.GetMounts() {
		st.Mounts = append(st.Mounts, proto.CloneOf(m))
	}
	if c.resources != nil {
		st.Resources.Linux = proto.CloneOf(c.resources)
		if l := st.Resources.Linux; l.MemorySwapLimitInBytes == 0 {
			l.MemorySwapLimitInBytes = l.MemoryLimitInBytes // no swap
		}
	}
	if !c.started.IsZero() {
		st.StartedAt = c.started.UnixNano()
	}
	if !c.finished.IsZero() {
		st.FinishedAt = c.finished.UnixNano()
	}
	if r.cfg.Flavor != Containerd16 {
		st.ImageId = c.image.id
		st.Image.UserSpecifiedImage = c.config.GetImage().GetUserSpecifiedImage()
		st.User = &runtimeapi.ContainerUser{Linux: c.user()}
		st.StopSignal = c.config.GetStopSignal()
		if st.StopSignal == runtimeapi.Signal_RUNTIME_DEFAULT {
			st.StopSignal = runtimeapi.Signal_SIGTERM
		}
	}
	if state, lied := r.containerStates[c.id]; lied && lies {
		st.State = state
	}
	return st
}

// user is whom the process runs as: the container's wish, or else the image's.
func (c *container) user() *runtimeapi.LinuxContainerUser {
	sc := c.config.GetLinux().GetSecurityContext()
	u := &runtimeapi.LinuxContainerUser{Gid: sc.GetRunAsGroup().GetValue()}
	switch {
	case sc.GetRunAsUser() != nil:
		u.Uid = sc.GetRunAsUser().GetValue()
	case c.image.uid != nil:
		u.Uid = *c.image.uid
	}
	u.SupplementalGroups = append([]int64{u.Gid}, sc.GetSupplementalGroups()...)
	return u
}

func (s *runtimeServer) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	f := req.GetFilter()
	items := r.listedContainers(f.GetLabelSelector())
	if r.frozen != nil {
		items = r.frozen.containers
	}
	resp := &runtimeapi.ListContainersResponse{}
	for _, c := range items {
		if strings.HasPrefix(c.Id, f.GetId()) &&
			strings.HasPrefix(c.PodSandboxId, f.GetPodSandboxId()) &&
			(f.GetState() == nil || f.GetState().GetState() == c.State) &&
			selects(f.GetLabelSelector(), c.Labels) {
			resp.Containers = append(resp.Containers, c)
		}
	}
	return resp, nil
}

// listedContainers are those with some labels, ordered by ID, which is no order a caller
// can use.
func (r *Runtime) listedContainers(selector map[string]string) []*runtimeapi.Container {
	var out []*runtimeapi.Container
	for _, c := range r.containers {
		if !selects(selector, c.config.GetLabels()) {
			continue
		}
		st := r.containerStatus(c, true)
		out = append(out, &runtimeapi.Container{
			Id: st.Id, PodSandboxId: c.sandbox.id, Metadata: st.Metadata, Image: st.Image, ImageRef: st.ImageRef,
			ImageId: st.ImageId, State: st.State, CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations,
		})
	}
	slices.SortFunc(out, func(a, b *runtimeapi.Container) int { return strings.Compare(a.Id, b.Id) })
	return out
}

func (s *runtimeServer) UpdateContainerResources(_ context.Context, req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := byID(r.containers, req.GetContainerId())
	if !ok {
		return nil, notFound("failed to find container")
	}
	if c.resources == nil {
		c.resources = &runtimeapi.LinuxContainerResources{}
	}
	proto.Merge(c.resources, req.GetLinux()) // zero means unchanged
	r.notify()
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func (s *runtimeServer) ReopenContainerLog(_ context.Context, req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := byID(r.containers, req.GetContainerId())
	if !ok {
		return nil, notFound("an error occurred when try to find container %q", req.GetContainerId())
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, failure("container is not running")
	}
	if c.log != nil {
		if err := c.log.reopen(); err != nil {
			return nil, failure("failed to reopen log: %v", err)
		}
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}
