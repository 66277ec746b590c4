// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sextant-node/sextant/pkg/rpc"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// Subpath implements VolumeService. It waits for no volume: one that is not mounted is
// Unavailable. Parts of a pod's volumes are bound one at a time, and never while its
// volumes are removed.
func (s *Service) Subpath(ctx context.Context, req *volumev1.SubpathRequest) (*volumev1.SubpathResponse, error) {
	for field, value := range map[string]string{"uid": req.GetUid(), "volume": req.GetVolume(), "container": req.GetContainer(), "sub_path": req.GetSubPath()} {
		if value == "" {
			return nil, rpc.Invalid.Errorf("%s: required", field)
		}
	}
	if problems := validation.IsDNS1123Label(req.GetContainer()); len(problems) > 0 {
		return nil, rpc.Invalid.Errorf("container: %q: %s", req.GetContainer(), problems[0])
	}
	uid := types.UID(req.GetUid())
	s.pods.mu.Lock()
	w := s.pods.all[uid]
	if w == nil || s.pods.ending || w.mountedAt(req.GetVolume()) == "" {
		s.pods.mu.Unlock()
		return nil, notMounted(req)
	}
	s.pods.passes.Add(1) // the service does not end meanwhile
	s.pods.mu.Unlock()
	defer s.pods.passes.Done()
	select {
	case w.binding <- struct{}{}:
		defer func() { <-w.binding }()
	case <-ctx.Done():
		return nil, rpc.Unavailable.Errorf("another part of a volume of pod %s is being bound: %w", uid, ctx.Err())
	}
	s.pods.mu.Lock()
	path := w.mountedAt(req.GetVolume())
	s.pods.mu.Unlock()
	if path == "" || ctx.Err() != nil { // it is to go, or the caller has given up
		return nil, notMounted(req)
	}
	target, err := s.maker.host.Subpath(uid, req.GetVolume(), req.GetContainer(), int(req.GetIndex()), path, req.GetSubPath())
	if err != nil {
		return nil, rpc.Conflict.Errorf("%w", err)
	}
	return &volumev1.SubpathResponse{HostPath: target}, nil
}

func notMounted(req *volumev1.SubpathRequest) error {
	return rpc.Unavailable.Errorf("volume %s of pod %s is not mounted", req.GetVolume(), req.GetUid())
}
