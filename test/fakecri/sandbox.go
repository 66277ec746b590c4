// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeServer is the RuntimeService; what it does not have is Unimplemented.
type runtimeServer struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	r *Runtime
}

// failure is an error as containerd's plain Go errors arrive: code Unknown.
func failure(format string, args ...any) error {
	return status.Errorf(codes.Unknown, format, args...)
}

// builtinHandler is there without being configured, under its name and under "".
const builtinHandler = "runc"

// taken is the refusal of a name that is in use.
func (r *Runtime) taken(format string, args ...any) error {
	if r.cfg.Flavor == Containerd16 {
		return failure(format, args...)
	}
	return status.Errorf(codes.FailedPrecondition, format, args...)
}

func notFound(format string, args ...any) error {
	return status.Errorf(codes.NotFound, format+": not found", args...)
}

func (s *runtimeServer) RunPodSandbox(ctx context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	config := req.GetConfig()
	if config.GetMetadata() == nil {
		return nil, failure("sandbox config must include metadata")
	}
	if h := req.GetRuntimeHandler(); h != "" && h != builtinHandler && !slices.Contains(r.cfg.Handlers, h) {
		return nil, failure("failed to get sandbox runtime: no runtime for %q is configured", h)
	}
	id, seq := r.newID()
	sb := &sandbox{
		id: id, seq: seq,
		name:    sandboxName(config.GetMetadata()),
		config:  proto.CloneOf(config),
		handler: req.GetRuntimeHandler(),
		state:   runtimeapi.PodSandboxState_SANDBOX_READY,
		created: r.now(),
	}
	if err := r.reserve(sb.name, id); err != nil {
		return nil, r.taken("failed to reserve sandbox name %q: %v", sb.name, err)
	}
	r.linger(ctx)
	if !onHostNetwork(config) {
		ip, err := r.addresses.take()
		if err != nil {
			delete(r.names, sb.name)
			return nil, failure("failed to setup network for sandbox %q: %v", id, err)
		}
		sb.ip = ip
	}
	r.sandboxes[id] = sb
	r.emit(id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, sb)
	r.emit(id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, sb)
	r.notify()
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func onHostNetwork(config *runtimeapi.PodSandboxConfig) bool {
	return config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func (s *runtimeServer) StopPodSandbox(_ context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, ok := byID(r.sandboxes, req.GetPodSandboxId())
	if !ok {
		if r.cfg.Flavor == Containerd16 {
			return nil, notFound("an error occurred when try to find sandbox %q", req.GetPodSandboxId())
		}
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	r.stopSandbox(sb)
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// stopSandbox kills the containers, then the sandbox, and gives the address back.
func (r *Runtime) stopSandbox(sb *sandbox) {
	for _, c := range r.containersOf(sb.id) {
		r.killContainer(c)
	}
	if sb.state == runtimeapi.PodSandboxState_SANDBOX_READY {
		sb.state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		r.emit(sb.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, sb) // still with its address
	}
	if sb.ip.IsValid() {
		r.addresses.give(sb.ip)
		sb.ip = netip.Addr{}
	}
	r.notify()
}

func (s *runtimeServer) RemovePodSandbox(_ context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if sb, ok := byID(r.sandboxes, req.GetPodSandboxId()); ok {
		r.stopSandbox(sb)
		for _, c := range r.containersOf(sb.id) {
			if err := removable(c); err != nil {
				return nil, err
			}
			r.removeContainer(c)
		}
		r.dropSandbox(sb)
		r.emit(sb.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, sb)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (r *Runtime) dropSandbox(sb *sandbox) {
	delete(r.sandboxes, sb.id)
	delete(r.names, sb.name)
	r.notify()
}

func (s *runtimeServer) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, ok := byID(r.sandboxes, req.GetPodSandboxId())
	if !ok {
		return nil, notFound("an error occurred when try to find sandbox")
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: r.sandboxStatus(sb, true)}
	if req.GetVerbose() {
		resp.Info = info(map[string]any{
			"pid": sb.seq, "processStatus": strings.ToLower(strings.TrimPrefix(sb.state.String(), "SANDBOX_")), "config": sb.config,
		})
	}
	return resp, nil
}

func (r *Runtime) sandboxStatus(sb *sandbox, lies bool) *runtimeapi.PodSandboxStatus {
	st := &runtimeapi.PodSandboxStatus{
		Id:             sb.id,
		Metadata:       proto.CloneOf(sb.config.GetMetadata()),
		State:          sb.state,
		CreatedAt:      sb.created.UnixNano(),
		Network:        &runtimeapi.PodSandboxNetworkStatus{},
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{}}},
		Labels:         sb.config.GetLabels(),
		Annotations:    sb.config.GetAnnotations(),
		RuntimeHandler: sb.handler,
	}
	if o := sb.config.GetLinux().GetSecurityContext().GetNamespaceOptions(); o != nil {
		st.Linux.Namespaces.Options = proto.CloneOf(o)
	}
	if hidden := lies && r.hiddenIPs[sb.id]; sb.ip.IsValid() && !hidden {
		st.Network.Ip = sb.ip.String()
	}
	if state, lied := r.sandboxStates[sb.id]; lied && lies {
		st.State = state
	}
	return st
}

func (s *runtimeServer) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	f := req.GetFilter()
	items := r.listedSandboxes(f.GetLabelSelector())
	if r.frozen != nil {
		items = r.frozen.sandboxes
	}
	resp := &runtimeapi.ListPodSandboxResponse{}
	for _, sb := range items {
		if strings.HasPrefix(sb.Id, f.GetId()) &&
			(f.GetState() == nil || f.GetState().GetState() == sb.State) &&
			selects(f.GetLabelSelector(), sb.Labels) {
			resp.Items = append(resp.Items, sb)
		}
	}
	return resp, nil
}

// listedSandboxes are those with some labels, ordered by ID, which is no order a caller can
// use.
func (r *Runtime) listedSandboxes(selector map[string]string) []*runtimeapi.PodSandbox {
	var out []*runtimeapi.PodSandbox
	for _, sb := range r.sandboxes {
		if !selects(selector, sb.config.GetLabels()) {
			continue
		}
		st := r.sandboxStatus(sb, true)
		out = append(out, &runtimeapi.PodSandbox{
			Id: st.Id, Metadata: st.Metadata, State: st.State, CreatedAt: st.CreatedAt,
			Labels: st.Labels, Annotations: st.Annotations, RuntimeHandler: st.RuntimeHandler,
		})
	}
	slices.SortFunc(out, func(a, b *runtimeapi.PodSandbox) int { return strings.Compare(a.Id, b.Id) })
	return out
}

// selects reports whether all pairs of the selector are among the labels.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
