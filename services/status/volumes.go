// SPDX-License-Identifier: Apache-2.0

package status

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/status/internal/nodestatus"
)

// drivers are what CSINode lists; false while volume has not looked who is there.
func (in *inputs) drivers() ([]storagev1.CSINodeDriver, bool) {
	item, ok, known := in.volumes.Lookup(nodeKey)
	if !ok || !known {
		return nil, false
	}
	all := []storagev1.CSINodeDriver{}
	for _, d := range item.GetDrivers() {
		driver := storagev1.CSINodeDriver{Name: d.GetName(), NodeID: d.GetNodeId(), TopologyKeys: slices.Sorted(maps.Keys(d.GetTopology()))}
		if n := d.GetMaxVolumes(); n > 0 {
			count := int32(min(n, 1<<31-1)) //nolint:gosec // it is bounded
			driver.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
		}
		all = append(all, driver)
	}
	return all, true
}

// identities are what the Node says of drivers; nil while volume has not looked who
// is there.
func (in *inputs) identities() *nodestatus.Drivers {
	item, ok, known := in.volumes.Lookup(nodeKey)
	if !ok || !known {
		return nil
	}
	d := &nodestatus.Drivers{NodeIDs: map[string]string{}, Topology: map[string]string{}}
	for _, driver := range item.GetDrivers() {
		d.NodeIDs[driver.GetName()] = driver.GetNodeId()
		maps.Copy(d.Topology, driver.GetTopology())
	}
	return d
}

// inUse are the volumes that the attach controller leaves attached; nil while
// nothing is known of them.
func (in *inputs) inUse() []v1.UniqueVolumeName {
	item, ok := in.volumes.Get(nodeKey)
	if !ok {
		return nil
	}
	all := []v1.UniqueVolumeName{}
	for _, name := range item.GetInUse() {
		all = append(all, v1.UniqueVolumeName(name))
	}
	return all
}

// expansions are what claims are to say of their volumes' size on this node.
func (in *inputs) expansions() []*volumev1.ClaimExpansion {
	item, _ := in.volumes.Get(nodeKey)
	return item.GetExpansions()
}
