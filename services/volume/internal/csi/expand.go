package csi

import (
	"context"
	"fmt"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
)

// growStaged has the driver expand a staged volume that is to be larger.
func (m *Manager) growStaged(ctx context.Context, d *driver, r *Request, s staged) error {
	if r.Size == 0 || s.Size >= r.Size {
		return nil
	}
	able, err := d.can(ctx, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	if err != nil || !able {
		return err
	}
	c, err := m.capability(ctx, d, r)
	if err != nil {
		return err
	}
	_, err = d.node.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: r.Handle, VolumePath: s.Path, StagingTargetPath: s.Path, CapacityRange: &csi.CapacityRange{RequiredBytes: r.Size},
		VolumeCapability: c, Secrets: r.ExpandSecrets,
	})
	if err != nil {
		return fmt.Errorf("NodeExpandVolume failed for volume %q : %w", r.Name, err)
	}
	s.Size = r.Size
	return m.putStaged(s)
}

// grow is growStaged for a volume in use.
func (m *Manager) grow(ctx context.Context, r *Request, _ string) error {
	m.mu.Lock()
	s, ok := m.stagings[r.volume()]
	m.mu.Unlock()
	if !ok || r.Size == 0 || s.Size >= r.Size {
		return nil
	}
	d, err := m.cfg.Drivers.get(r.Driver)
	if err != nil {
		return err
	}
	return m.growStaged(ctx, d, r, s)
}
