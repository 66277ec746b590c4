package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/claim"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/demand"
)

// Reasons of events about the size of volumes (the kubelet's).
const (
	reasonExpanded  = "FileSystemResizeSuccessful"
	reasonNotGrown  = "VolumeResizeFailed"
	reasonNoMount   = "FailedMount"
	expandedMessage = "MountVolume.NodeExpandVolume succeeded for volume %q %s"
)

// expansion is what a claim is to say of its volume's size after a driver was
// asked, err being the answer; nil for nothing, or nothing else than it says.
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

// tellClaim notes what a claim is to say of a volume's size.
func (s *Service) tellClaim(ctx context.Context, w *podWork, volume string, item *volumev1.ClaimExpansion) {
	s.mu.Lock()
	_, had := w.expansions[volume]
	if item == nil {
		delete(w.expansions, volume)
	} else {
		if w.expansions == nil {
			w.expansions = map[string]*volumev1.ClaimExpansion{}
		}
		w.expansions[volume] = item
	}
	s.mu.Unlock()
	if had || item != nil {
		s.publishNode(ctx)
	}
}

// expansions are what all claims are to say, one item for each: of pods that share
// a claim, one may know that it is done. s.mu is held.
func (s *Service) expansions() []*volumev1.ClaimExpansion {
	all := map[string]*volumev1.ClaimExpansion{}
	for _, w := range s.pods {
		if w.withdrawing {
			continue
		}
		for _, item := range w.expansions {
			key := item.GetNamespace() + "/" + item.GetName()
			if had := all[key]; had.GetState() != volumev1.ExpansionState_EXPANSION_STATE_DONE {
				all[key] = item
			}
		}
	}
	sorted := make([]*volumev1.ClaimExpansion, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[key])
	}
	return sorted
}

// sayExpanded has an event about the pod and one about the claim.
func (s *Service) sayExpanded(ctx context.Context, p *v1.Pod, src *claim.Source, node string) {
	text := fmt.Sprintf(expandedMessage, src.Volume.Name, node)
	s.emit(ctx, podReference(p), v1.EventTypeNormal, reasonExpanded, text)
	s.emit(ctx, claimReference(src.Claim), v1.EventTypeNormal, reasonExpanded, text)
}
