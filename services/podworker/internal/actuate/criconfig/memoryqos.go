// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"cmp"
	"math"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// MemoryQoS is the node's part of memory protection and throttling (KEP-2570,
// gate MemoryQoS, cgroup v2).
type MemoryQoS struct {
	// Tiered protects requests: memory.min for Guaranteed pods, memory.low for
	// others. Without it both are written as 0, so that nothing stays behind.
	Tiered bool
	// ThrottlingFactor is memoryThrottlingFactor.
	ThrottlingFactor float64
	// NodeAllocatable is the limit of a container without one, in bytes.
	NodeAllocatable int64
	// PageSize of the node in bytes.
	PageSize int64
}

func (q MemoryQoS) unified(p *v1.Pod, c *v1.Container) map[string]string {
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	out := map[string]string{}
	switch {
	case request == 0 || !q.Tiered:
		out["memory.min"], out["memory.low"] = "0", "0"
	case pod.QOS(p) == v1.PodQOSGuaranteed:
		out["memory.min"] = strconv.FormatInt(request, 10)
	default:
		out["memory.low"] = strconv.FormatInt(request, 10)
	}
	if request == limit {
		return out
	}
	limit = cmp.Or(limit, q.NodeAllocatable)
	if limit > 0 && q.PageSize > 0 {
		wanted := float64(request) + (float64(limit)-float64(request))*q.ThrottlingFactor
		if high := int64(math.Floor(wanted/float64(q.PageSize))) * q.PageSize; high > request {
			out["memory.high"] = strconv.FormatInt(high, 10)
		}
	}
	return out
}
