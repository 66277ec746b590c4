// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/test/measure"
)

// TestCgroupsWithoutAllocationAreReleased: resource lists pods that have a cgroup and hold
// nothing; those that podworker does not know are released, and count as no pods of the
// runtime and no folders. One that it knows is left alone.
func TestCgroupsWithoutAllocationAreReleased(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	p := web("a")
	n.desire(p)
	n.live()
	n.until("running", func() bool { return n.running("a") && n.settled(p.UID) })
	item, _ := n.capacity.Get("node")
	item = proto.CloneOf(item)
	item.UnallocatedCgroups = []string{string(p.UID), "uid-lost"}
	n.set(n.capacity.Set(context.Background(), "node", item))
	n.pass("released", 10*time.Second, func() bool {
		return slices.Contains(n.releases(), "uid-lost")
	})
	item.UnallocatedCgroups = nil
	n.set(n.capacity.Set(context.Background(), "node", item))
	n.pass("the searches after", 10*time.Second, func() bool { return n.unknown("uid-lost") })
	if got := n.releases(); slices.Contains(got, string(p.UID)) || !n.running("a") {
		t.Errorf("released %v", got)
	}
	measure.Expect(t, n.metrics, map[string]float64{
		"kubelet_orphaned_runtime_pods_total": 0, "kubelet_orphan_pod_cleaned_volumes": 0,
	})
}

// releases are the UIDs of pods that resource was asked to release.
func (n *node) releases() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.releasing)
}

// unknown reports whether a pod has no worker.
func (n *node) unknown(uid types.UID) bool {
	n.loop.mu.Lock()
	defer n.loop.mu.Unlock()
	return n.loop.workers[uid] == nil
}
