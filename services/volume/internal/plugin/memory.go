// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/pod"
)

// cpuPeriod has no influence on memory.
const cpuPeriod = 100 * time.Millisecond

// MemoryBound is the size of a volume in memory: the smallest of its own limit, the
// memory limit of the pod's cgroup and the node's allocatable memory (KEP-1967). Without
// the last, the others are enough.
func MemoryBound(p *v1.Pod, limit *resource.Quantity, allocatable func() (v1.ResourceList, error)) (int64, error) {
	var bound int64
	smaller := func(n int64) {
		if n > 0 && (bound == 0 || n < bound) {
			bound = n
		}
	}
	if limit != nil {
		smaller(limit.Value())
	}
	if cgroup := pod.PodCgroupResources(p, true, cpuPeriod).Memory; cgroup != nil {
		smaller(*cgroup)
	}
	node, err := allocatable()
	if err != nil && bound == 0 {
		return 0, fmt.Errorf("node allocatable: %w", err)
	}
	smaller(node.Memory().Value())
	return bound, nil
}
