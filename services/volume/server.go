// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// Declare implements VolumeService. The intent is on disk when it returns.
func (s *Service) Declare(ctx context.Context, req *volumev1.DeclareRequest) (*volumev1.DeclareResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, rpc.Invalid.Errorf("pod: %w", err)
	}
	if err := pod.CheckUID(p.UID); err != nil {
		return nil, rpc.Invalid.Errorf("pod.metadata.uid: %w", err)
	}
	for i, v := range p.Spec.Volumes {
		if problems := validation.IsDNS1123Label(v.Name); len(problems) > 0 {
			return nil, rpc.Invalid.Errorf("pod.spec.volumes[%d].name: %q: %s", i, v.Name, problems[0])
		}
	}
	// What no volume is made of must not make a new declaration.
	p.Spec.Volumes = pod.UsedVolumes(p)
	p.Status, p.ManagedFields, p.ResourceVersion = v1.PodStatus{}, nil, ""
	revision, err := s.declare(ctx, p)
	if err != nil {
		return nil, err
	}
	return &volumev1.DeclareResponse{Revision: revision.Proto()}, nil
}

// Withdraw implements VolumeService. The intent is on disk when it returns.
func (s *Service) Withdraw(ctx context.Context, req *volumev1.WithdrawRequest) (*volumev1.WithdrawResponse, error) {
	uid := types.UID(req.GetUid())
	if err := pod.CheckUID(uid); err != nil {
		return nil, rpc.Invalid.Errorf("uid: %w", err)
	}
	revision, err := s.withdraw(ctx, uid)
	if err != nil {
		return nil, err
	}
	return &volumev1.WithdrawResponse{Revision: revision.Proto()}, nil
}
