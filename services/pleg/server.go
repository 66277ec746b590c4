// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"

	"github.com/sextant-node/sextant/pkg/rpc"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

// Refresh implements PlegService.
func (s *Service) Refresh(ctx context.Context, req *plegv1.RefreshRequest) (*plegv1.RefreshResponse, error) {
	if req.GetUid() == "" {
		return nil, rpc.Invalid.Errorf("uid: required")
	}
	r, revision, err := s.pods.read(ctx, req.GetUid(), asked(req.GetInventory()))
	if err != nil {
		return nil, rpc.Unavailable.Errorf("read pod %s: %w", req.GetUid(), err)
	}
	return &plegv1.RefreshResponse{Revision: revision.Proto(), Record: r}, nil
}
