// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
)

// Cgroups makes and removes cgroups; cgroup.Tree is the real one.
type Cgroups interface {
	Ensure(name pod.CgroupName, values cgroup.Values) error
	Remove(name pod.CgroupName) error
	// Kill kills what is in a cgroup; false where the kernel has no such thing.
	Kill(name pod.CgroupName) (done bool, err error)
	Exists(name pod.CgroupName) bool
	// Begun reports whether something was started in a pod's cgroup.
	Begun(name pod.CgroupName) bool
	// Set changes a cgroup that is there.
	Set(name pod.CgroupName, values cgroup.Values) error
	MemoryUsage(name pod.CgroupName) (int64, error)
	// MemoryLimit is the largest number, or nearly, where there is none.
	MemoryLimit(name pod.CgroupName) (int64, error)
	// Pods that have a cgroup right below a parent.
	Pods(parent pod.CgroupName) ([]types.UID, error)
}

// tree is the cgroups from kubepods down to the pods.
type tree struct {
	of     func(pod.CgroupDriver) Cgroups
	ledger *ledger
	host   machine.Host
	events *events
	ender  Ender
	wake   signal.Signal
	// classes orders the writers of what classes have together.
	classes sync.Mutex
	// unreserved is the last event about a reservation that is not enforced; the loop's.
	unreserved string
	// unbounded: the bound of all pods together could not be set; the loop's.
	unbounded bool
}

// find is the cgroup of a pod of any class, or nil.
func (t *tree) find(now *settings, uid types.UID) pod.CgroupName {
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		if name := pod.PodCgroupOf(now.root, class, uid); t.of(now.driver).Exists(name) {
			return name
		}
	}
	return nil
}

// ensurePod makes a pod's cgroup.
func (t *tree) ensurePod(h *held, now *settings) error {
	if len(h.Cgroup) == 0 {
		return nil
	}
	return t.of(h.Driver).Ensure(h.Cgroup, now.room(h))
}

// adopted is the allocation of a pod after another agent may have had the node. Where one that
// runs has a cgroup with a higher limit of memory than it is to have, it is one of a resize that
// is not carried out, and the cgroup keeps its limit: what uses the memory would be killed.
// podworker has containers and cgroup follow as far as what they use allows. In all other cases
// it is the pod's own, with the same Room.
func (t *tree) adopted(h *held, now *settings, running bool) allocation {
	next := h.allocation
	if !running || len(h.Cgroup) == 0 {
		return next
	}
	room := now.room(h).CgroupResources
	has, err := t.of(h.Driver).MemoryLimit(h.Cgroup)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.ledger.log.Error("limit of a running pod not read", "uid", h.uid(), "error", err.Error())
	}
	if err != nil || room.Memory == nil || *room.Memory <= 0 || has <= *room.Memory {
		return next
	}
	room.Memory = &has
	next.Room = &room
	if next.Allocation == next.Settled {
		next.Allocation, next.Allocated = next.Allocation+1, cmp.Or(next.Allocated, h.pod.Generation)
	}
	return next
}

// readopt is [tree.adopted] for a pod that the checkpoint has. Callers have the pod's turn.
func (t *tree) readopt(ctx context.Context, h *held, now *settings) error {
	next := t.adopted(h, now, len(h.Cgroup) > 0 && t.of(h.Driver).Begun(h.Cgroup))
	if next.Room == h.Room {
		return nil
	}
	if err := t.ledger.put(h, next); err != nil {
		return err
	}
	return t.ledger.publish(ctx, h)
}

// Ender kills what is left in the cgroup of a pod, where the kernel does not do that
// for all that may write to the cgroup (version 1).
type Ender interface {
	// EndPod returns when nothing is left.
	EndPod(ctx context.Context, uid string) error
}
