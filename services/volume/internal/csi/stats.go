// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"

	csi "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/sextant-node/sextant/services/volume/internal/measure"
)

// Source of readings that a driver made.
const Source measure.Source = "csi"

// ErrNoStats says that a path is no driver's, or that its driver counts nothing of a file
// system.
var ErrNoStats = errors.New("no driver measures this volume")

// Measure asks the driver of a published volume how full it is, and with health how it
// is, which not every driver tells (KEP-1432).
func (m *Manager) Measure(ctx context.Context, path string, health bool) (*measure.Reading, error) {
	all := m.uses.list(func(u use) bool { return u.Target == path })
	if len(all) == 0 {
		return nil, ErrNoStats
	}
	found := all[0]
	s, _ := m.stages.get(found.volume())
	d, err := m.cfg.Drivers.get(found.Driver)
	if err != nil {
		return nil, err
	}
	able, err := d.can(ctx, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	if err != nil {
		return nil, err
	}
	switch {
	case !able && found.Block: // as with the kubelet, nothing is known of it
		return nil, fmt.Errorf("CSI driver %s does not measure its block volumes", d.Name)
	case !able:
		return nil, ErrNoStats
	}
	if health {
		if health, err = d.can(ctx, csi.NodeServiceCapability_RPC_VOLUME_CONDITION); err != nil {
			return nil, err
		}
	}
	answer, err := d.node.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{
		VolumeId: found.Handle, VolumePath: path, StagingTargetPath: s.Path,
	})
	if err != nil {
		return nil, fmt.Errorf("NodeGetVolumeStats: %w", err)
	}
	r := &measure.Reading{Source: Source}
	if c := answer.GetVolumeCondition(); health && c != nil {
		r.Health = &measure.Health{Abnormal: c.GetAbnormal(), Message: c.GetMessage()}
	}
	if len(answer.GetUsage()) == 0 && r.Health == nil {
		return nil, errors.New("NodeGetVolumeStats: the driver tells no usage")
	}
	for _, u := range answer.GetUsage() {
		total, available, used := uint64(max(u.GetTotal(), 0)), uint64(max(u.GetAvailable(), 0)), uint64(max(u.GetUsed(), 0))
		switch u.GetUnit() {
		case csi.VolumeUsage_BYTES:
			r.Capacity, r.Available, r.Used = total, available, used
		case csi.VolumeUsage_INODES:
			r.Inodes, r.InodesFree, r.InodesIn = total, available, used
		}
	}
	return r, nil
}
