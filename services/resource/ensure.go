// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
)

// ensure bounds what is not pods, and makes kubepods and its classes, and every pod's
// cgroup.
func (t *tree) ensure(ctx context.Context, now *settings) error {
	if !now.qos() {
		return nil
	}
	if err := t.ensureReserved(ctx, now); err != nil {
		return err
	}
	cgroups := t.of(now.driver)
	for i := 1; i <= len(now.root); i++ {
		if err := cgroups.Ensure(now.root[:i], cgroup.Values{}); err != nil {
			return err
		}
	}
	if err := t.ensureKubepods(ctx, now); err != nil {
		return err
	}
	if err := cgroups.Ensure(pod.QOSCgroup(now.root, v1.PodQOSBestEffort), cgroup.Values{CgroupResources: pod.CgroupResources{CPUShares: new(uint64(pod.MinShares))}}); err != nil {
		return err
	}
	if err := t.ensureClasses(now); err != nil {
		return err
	}
	t.ledger.each(func(h *held) {
		if h.Releasing {
			return
		}
		err := t.readopt(ctx, h, now)
		if err == nil {
			err = t.ensurePod(h, now)
		}
		if err != nil {
			t.ledger.log.Error("pod cgroup", "uid", h.uid(), "error", err.Error())
		}
	})
	return nil
}

// ensureKubepods makes the parent of all pods, and bounds it.
func (t *tree) ensureKubepods(ctx context.Context, now *settings) error {
	if err := t.of(now.driver).Ensure(pod.KubepodsCgroup(now.root), cgroup.Values{}); err != nil {
		return err
	}
	t.bound(ctx, now)
	return nil
}

// bound bounds all pods together: by the node's capacity and, where allocatable is to be
// enforced, by what is reserved of it. A bound the kernel refuses (memory in use already)
// is an event: pods go on without, and [tree.renew] tries again.
func (t *tree) bound(ctx context.Context, now *settings) {
	name := pod.KubepodsCgroup(now.root)
	enforced := slices.Contains(now.conf.Kubelet.EnforceNodeAllocatable, "pods")
	bound, err := t.podsBound(now, enforced)
	if err == nil {
		err = t.of(now.driver).Ensure(name, bound)
	}
	t.unbounded = err != nil
	switch {
	case err != nil:
		t.events.node(ctx, now, v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", name, err))
	case enforced:
		t.events.node(ctx, now, v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
	}
}

// podsBound is what all pods together may use. The eviction thresholds are not
// taken out: they are there to be noticed before the kernel kills.
func (t *tree) podsBound(now *settings, enforced bool) (cgroup.Values, error) {
	processes, _, err := t.host.Processes()
	if err != nil {
		return cgroup.Values{}, err
	}
	left := now.capacity.DeepCopy()
	left[machine.PID] = *resource.NewQuantity(processes, resource.DecimalSI)
	if enforced {
		reserved, err := machine.Reserved(now.capacity, &now.conf.Kubelet, nil)
		if err != nil {
			return cgroup.Values{}, err
		}
		left = machine.Less(left, reserved)
	}
	pids, memory, shares := left.Name(machine.PID, resource.DecimalSI).Value(), left.Memory().Value(), pod.MilliCPUToShares(left.Cpu().MilliValue())
	return cgroup.Values{CgroupResources: pod.CgroupResources{CPUShares: &shares, Memory: &memory}, PIDs: &pids}, nil
}

// renew writes again what others may have changed since: systemd does with the
// files of its slices, and pods of the classes come and go. A bound of all pods that the
// kernel has refused is tried again.
func (t *tree) renew(ctx context.Context, now *settings) {
	if t.unbounded && now.qos() {
		t.bound(ctx, now)
	}
	if err := t.ensureClasses(now); err != nil {
		t.ledger.log.Error("cgroups of the classes", "error", err.Error())
	}
	for _, r := range now.reservations() {
		if err := t.reserve(now, r); err != nil {
			t.ledger.log.Error("reservation not enforced", "field", r.field, "error", err.Error())
		}
	}
}
