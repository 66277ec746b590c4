// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
)

// reservation is a cgroup of the administrator's that is bounded by what is reserved for
// it.
type reservation struct {
	// key in enforceNodeAllocatable; compressible bounds CPU only.
	key          string
	compressible bool
	field, named string
	list         map[string]string
	// title and short are the kubelet's words for it in events.
	title, short string
}

// reservations are those that are to be enforced.
func (now *settings) reservations() []reservation {
	k := now.conf.Kubelet
	system := reservation{field: "systemReservedCgroup", named: k.SystemReservedCgroup, list: k.SystemReserved, title: "System Reserved", short: "system"}
	kube := reservation{field: "kubeReservedCgroup", named: k.KubeReservedCgroup, list: k.KubeReserved, title: "Kube Reserved", short: "kube"}
	var all []reservation
	for _, r := range []reservation{system, kube} {
		r.key = r.short + "-reserved"
		if slices.Contains(k.EnforceNodeAllocatable, r.key) {
			all = append(all, r)
		}
		r.key, r.title, r.compressible = r.key+"-compressible", r.title+" Compressible", true
		if slices.Contains(k.EnforceNodeAllocatable, r.key) {
			all = append(all, r)
		}
	}
	return all
}

// bound is what the cgroup of a reservation gets.
func (r reservation) bound(now *settings) (cgroup.Values, error) {
	var values cgroup.Values
	for name, text := range r.list {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return values, fmt.Errorf("%s: %w", name, err)
		}
		switch v1.ResourceName(name) {
		case v1.ResourceCPU:
			values.CPUShares = new(pod.MilliCPUToShares(q.MilliValue()))
		case v1.ResourceMemory:
			if !r.compressible {
				values.Memory = new(q.Value())
			}
		case machine.PID:
			if !r.compressible {
				values.PIDs = new(q.Value())
			}
		}
	}
	if now.protects() {
		least := int64(0)
		if now.tiered() {
			least = ptr.Deref(values.Memory, 0)
		}
		values.Unified = map[string]string{"memory.min": strconv.FormatInt(least, 10)}
	}
	return values, nil
}

// ensureReserved bounds the cgroups of what is not pods. As with a kubelet no pod is
// admitted while one of them is not there, or does not take its bound.
func (t *tree) ensureReserved(ctx context.Context, now *settings) error {
	for _, r := range now.reservations() {
		if err := t.reserve(now, r); err != nil {
			message := fmt.Sprintf("Failed to enforce %s Cgroup Limits on %q: %v", r.title, r.named, err)
			if t.unreserved != message {
				t.unreserved = message
				t.events.node(ctx, now, v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", message)
			}
			return fmt.Errorf("%s: %w", r.field, err)
		}
		t.events.node(ctx, now, v1.EventTypeNormal, "NodeAllocatableEnforced", fmt.Sprintf("Updated limits on %s reserved cgroup %s", r.short, r.named))
	}
	t.unreserved = ""
	return nil
}

func (t *tree) reserve(now *settings, r reservation) error {
	name, err := pod.ParseCgroup(r.named, now.driver)
	if err != nil {
		return err
	}
	values, err := r.bound(now)
	if err != nil {
		return err
	}
	return t.of(now.driver).Set(name, values)
}
