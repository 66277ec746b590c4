// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/services/volume/internal/claim"
)

// notOnNodes is the annotation of a claim whose volume grows without the nodes.
const notOnNodes = "volume.kubernetes.io/node-expansion-not-required"

// Growth is what is to be done about the size of a claim's volume on this node
// (KEP-1790). Sizes are bytes.
type Growth struct {
	// Had is the size by the claim's status.
	Had int64
	// Size the driver is to expand the volume to; zero for none yet, or none at all.
	Size int64
	// Mark says that the claim must tell first that the node expands it.
	Mark bool
	// Tell says that the claim is to be told of the end.
	Tell bool
	// Failed reports whether the claim has a failure.
	Failed bool
	// Moved says that meanwhile another size is asked for: one that fails for certain is
	// not tried again, so that the controller may set out for the new one.
	Moved bool
}

// Target is the size that a claim's volume is to have: what the controller has set
// out for by the claim, which may be known here before the volume's own size is.
func Target(src *claim.Source) resource.Quantity {
	if size, ok := src.Claim.Status.AllocatedResources[v1.ResourceStorage]; ok && src.Claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] != "" {
		return size
	}
	return src.Volume.Spec.Capacity[v1.ResourceStorage]
}

// Grow decides by the claim, its status and the volume's size.
func Grow(src *claim.Source) Growth {
	c := src.Claim
	want, had := Target(src), c.Status.Capacity[v1.ResourceStorage]
	asked := c.Spec.Resources.Requests[v1.ResourceStorage]
	state, known := c.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	g := Growth{Had: had.Value(), Moved: asked.Cmp(want) != 0, Failed: slices.ContainsFunc(c.Status.Conditions, func(condition v1.PersistentVolumeClaimCondition) bool {
		return condition.Type == v1.PersistentVolumeClaimNodeResizeError && condition.Status == v1.ConditionTrue
	})}
	if src.ReadOnly || had.IsZero() {
		return g
	}
	switch {
	case !known && had.Cmp(want) >= 0:
		// Another node did, and told; a volume of many nodes grows on each.
		if _, spared := c.Annotations[notOnNodes]; !spared && slices.Contains(c.Spec.AccessModes, v1.ReadWriteMany) {
			g.Size = want.Value()
		}
	case !known && c.Status.AllocatedResources == nil:
		g.Size, g.Tell = want.Value(), true // a controller from before KEP-1790
	case state == v1.PersistentVolumeClaimNodeResizePending:
		g.Mark = true
	case state == v1.PersistentVolumeClaimNodeResizeInProgress:
		g.Size, g.Tell = want.Value(), true
	}
	return g
}
