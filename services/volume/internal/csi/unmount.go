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

// Unmount takes all volumes of drivers away from a pod, and unstages those that
// no other pod uses. It goes on with the others when one fails.
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
	defer m.turns.Take(u.volume())()
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
	if err := clearPath(u.Target, !u.Block); err != nil {
		return fmt.Errorf("UnmountVolume.TearDown failed: %w", err)
	}
	if u.Block {
		if err := file.Remove(m.disk.link(u.UID, u.Name)); err != nil {
			return err
		}
	}
	if len(m.others(u.volume(), u.UID)) == 0 {
		if err := m.unstage(ctx, d, u.volume()); err != nil {
			return err
		}
		if u.Block {
			if err := m.disk.forgetDevice(u.Name); err != nil {
				return err
			}
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
	if s.Boot != "" {
		s.Boot = ""
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

// Reap unstages the volumes of a driver that no pod uses: a life of this service
// ended between the last pod and the unstaging, or another agent left them.
func (m *Manager) Reap(ctx context.Context, name string) error {
	d, err := m.cfg.Drivers.get(name)
	if err != nil {
		return nil //nolint:nilerr // when it is back, it is reaped
	}
	var failed []error
	for _, s := range m.stages.list(func(s staged) bool { return s.Driver == name }) {
		failed = append(failed, m.reap(ctx, d, s.volume()))
	}
	return errors.Join(failed...)
}

func (m *Manager) reap(ctx context.Context, d *driver, volume string) error {
	defer m.turns.Take(volume)()
	if len(m.others(volume, "")) > 0 {
		return nil
	}
	return m.unstage(ctx, d, volume)
}
