package volume

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sextant-node/sextant/pkg/rpc"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// Subpath implements VolumeService. It waits for nothing: a volume that is not
// mounted is Unavailable.
func (s *Service) Subpath(_ context.Context, req *volumev1.SubpathRequest) (*volumev1.SubpathResponse, error) {
	for field, value := range map[string]string{"uid": req.GetUid(), "volume": req.GetVolume(), "container": req.GetContainer(), "sub_path": req.GetSubPath()} {
		if value == "" {
			return nil, rpc.Invalid.Errorf("%s: required", field)
		}
	}
	if problems := validation.IsDNS1123Label(req.GetContainer()); len(problems) > 0 {
		return nil, rpc.Invalid.Errorf("container: %q: %s", req.GetContainer(), problems[0])
	}
	uid := types.UID(req.GetUid())
	s.mu.Lock()
	path := ""
	if w := s.pods[uid]; w != nil && !w.withdrawing {
		if v := w.volumes[req.GetVolume()]; v != nil && v.state == volumev1.VolumeState_VOLUME_STATE_MOUNTED {
			path = v.path
		}
	}
	s.mu.Unlock()
	if path == "" {
		return nil, rpc.Unavailable.Errorf("volume %s of pod %s is not mounted", req.GetVolume(), uid)
	}
	target, err := s.host.Subpath(uid, req.GetVolume(), req.GetContainer(), int(req.GetIndex()), path, req.GetSubPath())
	if err != nil {
		return nil, rpc.Conflict.Errorf("%w", err)
	}
	return &volumev1.SubpathResponse{HostPath: target}, nil
}
