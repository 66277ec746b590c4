// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"

	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
)

// subpaths asks volume, which may mount, for the parts of volumes that
// containers mount.
type subpaths struct{ volume volumev1.VolumeServiceClient }

// Subpath implements actuate.Subpaths.
func (s subpaths) Subpath(ctx context.Context, req actuate.SubpathRequest) (string, error) {
	resp, err := s.volume.Subpath(ctx, &volumev1.SubpathRequest{
		Uid: string(req.UID), Volume: req.Volume, Container: req.Container, Index: int32(req.Index), SubPath: req.SubPath,
	})
	if err != nil {
		return "", err
	}
	return resp.GetHostPath(), nil
}
