package volume

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/rpc"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// Declare implements VolumeService. The intent is on disk when it returns.
func (s *Service) Declare(ctx context.Context, req *volumev1.DeclareRequest) (*volumev1.DeclareResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, rpc.Invalid.Errorf("pod: %w", err)
	}
	if p.UID == "" {
		return nil, rpc.Invalid.Errorf("pod.metadata.uid: required")
	}
	revision, err := s.declare(ctx, p)
	if err != nil {
		return nil, err
	}
	return &volumev1.DeclareResponse{Revision: revision.Proto()}, nil
}

// Withdraw implements VolumeService. The intent is on disk when it returns.
func (s *Service) Withdraw(ctx context.Context, req *volumev1.WithdrawRequest) (*volumev1.WithdrawResponse, error) {
	if req.GetUid() == "" {
		return nil, rpc.Invalid.Errorf("uid: required")
	}
	revision, err := s.withdraw(ctx, types.UID(req.GetUid()))
	if err != nil {
		return nil, err
	}
	return &volumev1.WithdrawResponse{Revision: revision.Proto()}, nil
}
