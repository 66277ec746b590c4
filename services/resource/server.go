// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// Admit implements ResourceService.
func (s *Service) Admit(ctx context.Context, req *resourcev1.AdmitRequest) (*resourcev1.AdmitResponse, error) {
	p, err := podOf(req.GetPod())
	if err != nil {
		return nil, err
	}
	if err := fault.Hit(ctx, "resource.admit"); err != nil {
		return nil, rpc.Unavailable.Errorf("%w", err)
	}
	s.ledger.retire(req.GetInactive(), string(p.UID))
	return s.admission.admit(ctx, p, req.GetRunning())
}

// Release implements ResourceService. The intent is on disk when it returns.
func (s *Service) Release(ctx context.Context, req *resourcev1.ReleaseRequest) (*resourcev1.ReleaseResponse, error) {
	if err := s.releaser.begin(ctx, req.GetUid()); err != nil {
		return nil, err
	}
	return &resourcev1.ReleaseResponse{Revision: s.ledger.revision().Proto()}, nil
}

// Resize implements ResourceService.
func (s *Service) Resize(ctx context.Context, req *resourcev1.ResizeRequest) (*resourcev1.ResizeResponse, error) {
	p, err := podOf(req.GetPod())
	if err != nil {
		return nil, err
	}
	if err := fault.Hit(ctx, "resource.resize"); err != nil {
		return nil, rpc.Unavailable.Errorf("%w", err)
	}
	if err := s.resizer.resize(ctx, p); err != nil {
		return nil, err
	}
	return &resourcev1.ResizeResponse{Revision: s.ledger.revision().Proto()}, nil
}

// Settle implements ResourceService.
func (s *Service) Settle(ctx context.Context, req *resourcev1.SettleRequest) (*resourcev1.SettleResponse, error) {
	if err := s.resizer.settle(ctx, req.GetUid(), req.GetAllocation()); err != nil {
		return nil, err
	}
	return &resourcev1.SettleResponse{Revision: s.ledger.revision().Proto()}, nil
}

// PreStart implements ResourceService. It does not take the pod's turn: a plugin that hangs
// does not keep the pod from being released.
func (s *Service) PreStart(ctx context.Context, req *resourcev1.PreStartRequest) (*resourcev1.PreStartResponse, error) {
	return &resourcev1.PreStartResponse{}, s.devices.preStart(ctx, req.GetUid(), req.GetContainer())
}

// Usage implements ResourceService.
func (s *Service) Usage(ctx context.Context, req *resourcev1.UsageRequest) (*resourcev1.UsageResponse, error) {
	if err := fault.Hit(ctx, "resource.usage"); err != nil {
		return nil, rpc.Unavailable.Errorf("%w", err)
	}
	now, _ := s.node.now()
	if now == nil {
		return nil, rpc.Unavailable.Errorf("the node's resources are not known yet")
	}
	return s.readings.usage(ctx, now, req.GetDisk()), nil
}

func podOf(data []byte) (*v1.Pod, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(data); err != nil {
		return nil, rpc.Invalid.Errorf("pod: %w", err)
	}
	if err := pod.CheckUID(p.UID); err != nil {
		return nil, rpc.Invalid.Errorf("pod.metadata.uid: %w", err)
	}
	return p, nil
}
