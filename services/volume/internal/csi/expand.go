// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"cmp"
	"context"
	"fmt"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ExpandError says that a driver did not expand a volume.
type ExpandError struct {
	Volume string
	Err    error
}

// Error implements error.
func (e *ExpandError) Error() string {
	return fmt.Sprintf("NodeExpandVolume failed for volume %q : %v", e.Volume, e.Err)
}

// Unwrap is what the driver said.
func (e *ExpandError) Unwrap() error { return e.Err }

// Final reports whether it has failed for certain, and is not going on still.
func (e *ExpandError) Final() bool {
	said, told := status.FromError(e.Err)
	if !told {
		return false // it did not get to the driver
	}
	switch said.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// Infeasible reports whether it would fail again however often it is tried (KEP-1790).
func (e *ExpandError) Infeasible() bool {
	switch status.Code(e.Err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return true
	}
	return false
}

// Expanded reports whether a volume has been expanded to a size on this node.
func (m *Manager) Expanded(r *Request) bool {
	if s, ok := m.stages.get(r.volume()); ok {
		return s.Size >= r.Size
	}
	u, _ := m.uses.get(string(r.UID) + "/" + r.Name)
	return u.Size >= r.Size
}

// growStaged has the driver expand a staged volume that is to be larger.
func (m *Manager) growStaged(ctx context.Context, d *driver, r *Request, s staged) error {
	grown, err := m.expand(ctx, d, r, s.Path, s.Path, cmp.Or(s.Size, r.Had))
	if err != nil || !grown {
		return err
	}
	s.Size = r.Size
	return m.stages.put(s.volume(), s)
}

// growUsed is growStaged for a volume whose driver does not stage it.
func (m *Manager) growUsed(ctx context.Context, d *driver, r *Request, u use) (use, error) {
	grown, err := m.expand(ctx, d, r, u.Target, "", cmp.Or(u.Size, r.Had))
	if err != nil || !grown {
		return u, err
	}
	u.Size = r.Size
	return u, m.uses.put(u.key(), u)
}

// grow expands a volume that is published.
func (m *Manager) grow(ctx context.Context, r *Request, u use) error {
	if r.Size == 0 || r.Inline {
		return nil
	}
	d, err := m.cfg.Drivers.get(r.Driver)
	if err != nil {
		return err
	}
	s, ok := m.stages.get(r.volume())
	if ok {
		return m.growStaged(ctx, d, r, s)
	}
	_, err = m.growUsed(ctx, d, r, u)
	return err
}

// expand asks the driver, if the volume is smaller than it is to be. One that the
// driver cannot expand while it is in use stays as it is, until it is to have
// another size.
func (m *Manager) expand(ctx context.Context, d *driver, r *Request, path, stage string, had int64) (grown bool, err error) {
	if had >= r.Size {
		return false, nil
	}
	able, err := d.can(ctx, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	if err != nil || !able {
		return false, err
	}
	if size, busy := m.busy.Load(r.volume()); busy && size == r.Size {
		return false, nil
	}
	c, err := m.capability(ctx, d, r)
	if err != nil {
		return false, err
	}
	_, err = d.node.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: r.Handle, VolumePath: path, StagingTargetPath: stage, CapacityRange: &csi.CapacityRange{RequiredBytes: r.Size},
		VolumeCapability: c, Secrets: r.ExpandSecrets,
	})
	if status.Code(err) == codes.FailedPrecondition {
		m.cfg.Log.Warn("not expanded while it is in use", "volume", r.Name, "error", err.Error())
		m.busy.Store(r.volume(), r.Size)
		return false, nil
	}
	if err != nil {
		return false, &ExpandError{Volume: r.Name, Err: err}
	}
	return true, nil
}
