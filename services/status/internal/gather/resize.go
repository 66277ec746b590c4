// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
)

// unjudged reports whether config serves a resize that the node has neither granted nor put
// off: who reads of its generation, and of no resize, takes it for done. podworker's pod does
// not tell by its generation, for it has the newest metadata and the sizes that are allocated.
// A pod that ends is not resized.
func unjudged(in Input) bool {
	spec, facts := in.Worker.Pod, in.Worker.Facts
	if in.Desired == nil || spec == nil || spec == in.Desired || facts.Lifecycle != podstatus.Syncing {
		return false
	}
	putOff := slices.ContainsFunc(facts.Resizes, func(z podstatus.Resize) bool {
		pending := z.State == podstatus.ResizeDeferred || z.State == podstatus.ResizeInfeasible
		return pending && z.ObservedGeneration >= in.Desired.Generation
	})
	return !putOff && pod.SizesID(spec) != pod.SizesID(in.Desired)
}

// generation is the newest one that a status says was observed.
func generation(s *v1.PodStatus) int64 {
	if s == nil {
		return 0
	}
	return s.ObservedGeneration
}
