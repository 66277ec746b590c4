// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/claim"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/demand"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

// reasonExpanded is the event of a volume that has its new size (the kubelet's).
const reasonExpanded = "FileSystemResizeSuccessful"

// expansion is what the claim is to say of its volume's size after the driver answered
// with err; nil if there is nothing to change.
func expansion(src *claim.Source, asked *demand.Asked, expanded bool, err error) *volumev1.ClaimExpansion {
	c, g := src.Claim, &asked.Growth
	item := &volumev1.ClaimExpansion{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID), ResourceVersion: c.ResourceVersion}
	var failed *csi.ExpandError
	switch {
	case g.Mark:
		item.State = volumev1.ExpansionState_EXPANSION_STATE_IN_PROGRESS
	case errors.As(err, &failed) && g.Tell && failed.Final():
		item.Error = failed.Error()
		switch {
		case failed.Infeasible() || g.Moved && g.Failed:
			item.State = volumev1.ExpansionState_EXPANSION_STATE_INFEASIBLE
		case g.Failed:
			return nil
		default:
			item.State = volumev1.ExpansionState_EXPANSION_STATE_FAILED
		}
	case expanded && g.Tell:
		item.State = volumev1.ExpansionState_EXPANSION_STATE_DONE
		size := demand.Target(src)
		item.Size = size.String()
	default:
		return nil
	}
	return item
}

// expanded emits an event about the pod and one about the claim.
func expanded(ctx context.Context, r *plugin.Request, node string) {
	text := fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", r.Source.Volume.Name, node)
	r.Report.Event(ctx, plugin.PodReference(r.Pod), v1.EventTypeNormal, reasonExpanded, text)
	r.Report.Event(ctx, plugin.ClaimReference(r.Source.Claim), v1.EventTypeNormal, reasonExpanded, text)
}
