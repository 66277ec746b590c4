package fakecri

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RuntimeName is what Version answers.
const RuntimeName = "fakecri"

func (s *runtimeServer) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	version := "2.4.2"
	if s.r.cfg.Flavor == Containerd16 {
		version = "1.6.20"
	}
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: RuntimeName, RuntimeVersion: version, RuntimeApiVersion: "v1",
	}, nil
}

func (s *runtimeServer) Status(_ context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{}}
	for _, c := range r.conditions {
		resp.Status.Conditions = append(resp.Status.Conditions, proto.CloneOf(c))
	}
	if r.cfg.Flavor != Containerd16 {
		for _, h := range append([]string{"", builtinHandler}, r.cfg.Handlers...) {
			resp.RuntimeHandlers = append(resp.RuntimeHandlers, &runtimeapi.RuntimeHandler{
				Name: h, Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true},
			})
		}
		resp.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
	}
	if req.GetVerbose() {
		resp.Info = map[string]string{"config": "{}", "golang": `"go"`}
	}
	return resp, nil
}

func (s *runtimeServer) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	if s.r.cfg.Flavor == Containerd16 {
		return nil, status.Error(codes.Unimplemented, "unknown method RuntimeConfig for service runtime.v1.RuntimeService")
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: s.r.cfg.CgroupDriver}}, nil
}

func (s *runtimeServer) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

func (s *runtimeServer) Exec(_ context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	url, err := s.streamURL("exec", req.GetContainerId())
	return &runtimeapi.ExecResponse{Url: url}, err
}

func (s *runtimeServer) Attach(_ context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	url, err := s.streamURL("attach", req.GetContainerId())
	return &runtimeapi.AttachResponse{Url: url}, err
}

func (s *runtimeServer) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, ok := byID(r.sandboxes, req.GetPodSandboxId())
	if !ok {
		return nil, notFound("failed to find sandbox %q", req.GetPodSandboxId())
	}
	if sb.state != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil, failure("sandbox container is not running")
	}
	return &runtimeapi.PortForwardResponse{Url: r.token("portforward")}, nil
}

func (s *runtimeServer) streamURL(kind, id string) (string, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := byID(r.containers, id)
	if !ok {
		return "", notFound("failed to find container %q in store", id)
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return "", failure("container is in %s state", c.state)
	}
	return r.token(kind), nil
}

func (r *Runtime) token(kind string) string {
	id, _ := r.newID()
	return fmt.Sprintf("%s/%s/%s", r.cfg.StreamURL, kind, id[:8])
}

// info is the verbose part of a status: one JSON document under "info".
func info(fields map[string]any) map[string]string {
	b, err := json.Marshal(fields)
	if err != nil {
		b = []byte("{}")
	}
	return map[string]string{"info": string(b)}
}
