// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/file"
)

// Unmount takes all volumes of drivers away from a pod. It goes on with the others when one
// fails. What no pod uses then stays staged, and in use, until it is reaped: a pod does not
// wait for that, as with the kubelet.
func (m *Manager) Unmount(ctx context.Context, uid types.UID) error {
	mine := m.usesOf(uid)
	slices.SortFunc(mine, func(a, b use) int { return cmp.Compare(a.Name, b.Name) })
	var failed []error
	for _, u := range mine {
		if err := m.unmount(ctx, u); err != nil {
			failed = append(failed, fmt.Errorf("volume %q: %w", cmp.Or(u.Volume, u.Name), err))
		}
	}
	return errors.Join(failed...)
}

func (m *Manager) unmount(ctx context.Context, u use) error {
	end, err := m.turns.Enter(ctx, u.volume())
	if err != nil {
		return err
	}
	defer end()
	d, err := m.cfg.Drivers.get(u.Driver)
	if err != nil {
		return fmt.Errorf("UnmountVolume.TearDown failed: %w", err)
	}
	if u.Boot != "" {
		u.Boot = ""
		if err := m.uses.put(u.key(), u); err != nil {
			return err
		}
	}
	if err := fault.Hit(ctx, "volume.csi.unpublish"); err != nil {
		return err
	}
	if _, err := d.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: u.Handle, TargetPath: u.Target}); err != nil {
		return fmt.Errorf("UnmountVolume.TearDown failed: %w", err)
	}
	m.busy.Delete(u.volume()) // who mounts it next has it expanded
	if err := clearPath(u.Target, !u.Block); err != nil {
		return fmt.Errorf("UnmountVolume.TearDown failed: %w", err)
	}
	if u.Block {
		if err := file.Remove(m.disk.link(u.UID, u.Name)); err != nil {
			return err
		}
	}
	if _, staged := m.stages.get(u.volume()); u.Block && !staged && len(m.others(u.volume(), u.UID)) == 0 {
		if err := m.disk.forgetDevice(u.Name); err != nil {
			return err
		}
	}
	return m.uses.drop(u.key())
}

// unstage has the driver let go of a volume. Callers hold its turn.
func (m *Manager) unstage(ctx context.Context, d *driver, volume string) error {
	s, ok := m.stages.get(volume)
	if !ok {
		return nil
	}
	if s.Boot != "" || !s.Leaving {
		s.Boot, s.Leaving = "", true
		if err := m.stages.put(s.volume(), s); err != nil {
			return err
		}
	}
	if err := fault.Hit(ctx, "volume.csi.unstage"); err != nil {
		return err
	}
	stages, err := d.can(ctx, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	if err != nil {
		return err
	}
	if stages {
		if _, err := d.node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: s.Handle, StagingTargetPath: s.Path}); err != nil {
			return fmt.Errorf("UnmountDevice failed: %w", err)
		}
	}
	if err := clearPath(s.Path, !s.Block); err != nil {
		return fmt.Errorf("UnmountDevice failed: %w", err)
	}
	if s.Block {
		if err := m.disk.forgetDevice(s.Name); err != nil {
			return err
		}
	}
	return m.stages.drop(volume)
}

// Left lists the volumes that are staged, or may be, and that no pod uses. One whose driver
// is away is listed when it is back.
func (m *Manager) Left() (volumes []string) {
	for _, s := range m.stages.list(func(staged) bool { return true }) {
		_, away := m.cfg.Drivers.get(s.Driver)
		if away == nil && len(m.others(s.volume(), "")) == 0 {
			volumes = append(volumes, s.volume())
		}
	}
	return volumes
}

// Reap unstages a volume, unless a pod uses it by now.
func (m *Manager) Reap(ctx context.Context, volume string) error {
	end, err := m.turns.Enter(ctx, volume)
	if err != nil {
		return err
	}
	defer end()
	s, ok := m.stages.get(volume)
	if !ok || len(m.others(volume, "")) > 0 {
		return nil
	}
	d, err := m.cfg.Drivers.get(s.Driver)
	if err != nil {
		return nil // when it is back, it is reaped
	}
	return m.unstage(ctx, d, volume)
}
