// SPDX-License-Identifier: Apache-2.0

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
		resp.Info = map[string]string{"config": fmt.Sprintf(`{"sandboxImage":%q}`, r.cfg.SandboxImage), "golang": `"go"`}
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

// info is the verbose part of a status: one JSON document under "info".
func info(fields map[string]any) map[string]string {
	b, err := json.Marshal(fields)
	if err != nil {
		b = []byte("{}")
	}
	return map[string]string{"info": string(b)}
}
