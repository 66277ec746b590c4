// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/sextant-node/sextant/pkg/service"
)

// known are the node's drivers; false while they are not known.
func (k *Keeper) known() ([]storagev1.CSINodeDriver, bool) {
	if k.deps.Drivers == nil {
		return nil, false
	}
	return k.deps.Drivers()
}

// listed reports whether the object lists the drivers there are, as far as is known.
func (k *Keeper) listed() bool {
	drivers, ok := k.known()
	k.mu.Lock()
	defer k.mu.Unlock()
	return !ok || k.wrote != nil && apiequality.Semantic.DeepEqual(*k.wrote, drivers)
}

// list writes the drivers there are into the object. That it fails does not make
// the node less ready: it is tried again.
func (k *Keeper) list(ctx context.Context, name string) error {
	drivers, ok := k.known()
	if !ok {
		return nil
	}
	err := k.write(ctx, name, drivers)
	if err != nil {
		k.deps.Log.Warn("CSINode does not list the drivers there are", service.KeyError, err.Error())
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wrote = &drivers
	return nil
}

func (k *Keeper) write(ctx context.Context, name string, drivers []storagev1.CSINodeDriver) error {
	have, err := k.deps.API.GetCSINode(ctx, name)
	if err != nil {
		return err
	}
	if apiequality.Semantic.DeepEqual(have.Spec.Drivers, drivers) {
		return nil
	}
	// The API keeps a driver as it is listed, but for its limit: one that changed is
	// taken out first.
	if kept := slices.DeleteFunc(slices.Clone(have.Spec.Drivers), func(d storagev1.CSINodeDriver) bool { return changed(d, drivers) }); len(kept) < len(have.Spec.Drivers) {
		without := have.DeepCopy()
		without.Spec.Drivers = kept
		if have, err = k.deps.API.UpdateCSINode(ctx, without); err != nil {
			return err
		}
	}
	want := have.DeepCopy()
	want.Spec.Drivers = drivers
	_, err = k.deps.API.UpdateCSINode(ctx, want)
	return err
}

// changed reports whether a driver is still there, and another.
func changed(old storagev1.CSINodeDriver, drivers []storagev1.CSINodeDriver) bool {
	return slices.ContainsFunc(drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == old.Name && (d.NodeID != old.NodeID || !slices.Equal(d.TopologyKeys, old.TopologyKeys))
	})
}
