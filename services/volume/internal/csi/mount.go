// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	utilstrings "k8s.io/utils/strings"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/mounts"
)

// Mount makes sure that a volume is published to a pod, and returns where. It may
// be called again and again. It waits for its turn while the volume is wanted: for a pod
// that leaves meanwhile, nothing is begun.
func (m *Manager) Mount(ctx, wanted context.Context, r *Request) (path string, err error) {
	if problem := checkName(r.Name); problem != nil {
		return "", problem
	}
	end, err := m.turns.Enter(wanted, r.volume())
	if err != nil {
		return "", err
	}
	defer end()
	u := use{
		UID: r.UID, Volume: r.Volume, Name: r.Name, Driver: r.Driver, Handle: r.Handle, Inline: r.Inline,
		Attachable: r.Attachable, Block: r.Block, Exclusive: r.Exclusive, Target: m.disk.target(r),
		Size: r.Had,
	}
	had, known := m.uses.get(u.key())
	if known && had.volume() != u.volume() {
		return "", fmt.Errorf("volume %s of the pod is %s, and was %s: it is not changed under a pod", r.Name, u.volume(), had.volume())
	}
	standing := known && m.stands(had)
	if standing && !r.Republish {
		return u.Target, m.grow(ctx, r, had)
	}
	for _, other := range m.others(r.volume(), r.UID) {
		if r.Exclusive || other.Exclusive {
			return "", errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
		}
	}
	d, err := m.cfg.Drivers.get(r.Driver)
	if err != nil {
		return "", err
	}
	if !standing {
		// The intent to publish comes first: what is staged has a user.
		if err := m.uses.put(u.key(), u); err != nil {
			return "", err
		}
		if err := fault.Hit(ctx, "volume.csi.stage"); err != nil {
			return "", err
		}
	}
	stage, err := m.stage(ctx, d, r)
	if err != nil {
		return "", err
	}
	if err := m.publish(ctx, d, r, u, stage, standing); err != nil {
		return "", err
	}
	if !standing {
		if err := m.settle(r, u); err != nil {
			return "", err
		}
	}
	// Also what was published again: the driver may have put other files there.
	if err := m.give(r, d, u); err != nil {
		return "", err
	}
	if standing {
		return u.Target, m.grow(ctx, r, had)
	}
	if stage == "" && !r.Inline {
		if u, err = m.growUsed(ctx, d, r, u); err != nil {
			return "", err
		}
	}
	u.Boot = m.cfg.Boot
	return u.Target, m.uses.put(u.key(), u)
}

// checkName makes sure that a volume's name is the name of one folder.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("volume name %q is not the name of a folder", name)
	}
	return nil
}

// stage makes sure that a volume is staged, if the driver stages, and returns where.
func (m *Manager) stage(ctx context.Context, d *driver, r *Request) (path string, err error) {
	if r.Inline {
		return "", nil
	}
	stages, err := d.can(ctx, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	if err != nil || !stages {
		return "", err
	}
	s := staged{Driver: r.Driver, Handle: r.Handle, Path: m.disk.stage(r), Block: r.Block, Size: r.Had, Label: r.Label}
	if r.Block {
		s.Name = r.Name
	}
	had, known := m.stages.get(r.volume())
	elsewhere := known && had.Path != s.Path && len(m.uses.list(func(u use) bool { return u.volume() == r.volume() })) == 1
	if elsewhere || had.Leaving && had.Label != s.Label {
		// It was another PersistentVolume, or no device, or had another label, for a pod that
		// has gone, and was not unstaged since.
		if err := m.unstage(ctx, d, r.volume()); err != nil {
			return "", err
		}
	}
	if had.Boot == m.cfg.Boot && had.Path == s.Path {
		if had.Label == s.Label {
			return s.Path, m.growStaged(ctx, d, r, had)
		}
		if len(m.others(r.volume(), r.UID)) > 0 {
			return "", fmt.Errorf("conflicting SELinux labels of volume %s: another pod has it mounted with %q, this one asks for %q", r.Name, had.Label, s.Label)
		}
		if err := m.unstage(ctx, d, r.volume()); err != nil {
			return "", err
		}
	}
	if err := m.stages.put(s.volume(), s); err != nil {
		return "", err
	}
	if err := m.prepareStage(r, s); err != nil {
		return "", fmt.Errorf("MountVolume.MountDevice failed for volume %q : %w", r.Name, err)
	}
	c, err := m.capability(ctx, d, r)
	if err != nil {
		return "", err
	}
	_, err = d.node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: r.Handle, PublishContext: r.PublishContext, StagingTargetPath: s.Path, VolumeCapability: c,
		Secrets: r.StageSecrets, VolumeContext: r.Attributes,
	})
	if err != nil {
		return "", fmt.Errorf("MountVolume.MountDevice failed for volume %q : %w", r.Name, err)
	}
	s.Boot = m.cfg.Boot
	if err := m.stages.put(s.volume(), s); err != nil {
		return "", err
	}
	return s.Path, m.growStaged(ctx, d, r, s)
}

func (m *Manager) prepareStage(r *Request, s staged) error {
	if err := os.MkdirAll(s.Path, 0o750); err != nil {
		return err
	}
	data := volData{Handle: r.Handle, Driver: r.Driver, Label: r.Label}
	dir := filepath.Dir(s.Path)
	if r.Block {
		return nil // publishing writes it
	}
	return writeData(dir, data)
}

// capability describes the use of a volume as this driver understands it.
func (m *Manager) capability(ctx context.Context, d *driver, r *Request) (*csi.VolumeCapability, error) {
	single, err := d.can(ctx, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	if err != nil {
		return nil, err
	}
	group := ""
	if r.FSGroup != nil {
		applies, err := d.can(ctx, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
		if err != nil {
			return nil, err
		}
		if applies {
			group = fmt.Sprint(*r.FSGroup)
		}
	}
	return r.capability(single, group), nil
}

// publish has the driver publish a volume. One that is published stays when
// publishing it again fails.
func (m *Manager) publish(ctx context.Context, d *driver, r *Request, u use, stage string, standing bool) error {
	if !standing {
		if err := m.preparePublish(r, u); err != nil {
			return err
		}
	}
	c, err := m.capability(ctx, d, r)
	if err != nil {
		return err
	}
	attributes := maps.Clone(r.Attributes)
	if attributes == nil {
		attributes = map[string]string{}
	}
	maps.Copy(attributes, r.PublishAttributes)
	_, err = d.node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: r.Handle, PublishContext: r.PublishContext, StagingTargetPath: stage, TargetPath: u.Target,
		VolumeCapability: c, Readonly: r.ReadOnly, Secrets: r.PublishSecrets, VolumeContext: attributes,
	})
	if status.Code(err) == codes.FailedPrecondition && stage != "" {
		// It is not staged, whatever the driver said before: stage it the next time.
		s, ok := m.stages.get(r.volume())
		if ok && !standing {
			s.Boot = ""
			err = errors.Join(err, m.stages.put(s.volume(), s))
		}
	}
	return err
}

func (m *Manager) preparePublish(r *Request, u use) error {
	dir := filepath.Dir(u.Target)
	lifecycle := "Persistent"
	if r.Inline {
		lifecycle = "Ephemeral"
	}
	notes := dir
	if r.Block {
		notes = filepath.Join(m.disk.devices(), r.Name, "data")
	}
	for _, folder := range []string{dir, notes} {
		if err := os.MkdirAll(folder, 0o750); err != nil {
			return err
		}
	}
	return writeData(notes, volData{
		Name: utilstrings.UnescapeQualifiedName(r.Name), Handle: r.Handle, Driver: r.Driver, Node: r.Node, Attachment: r.Attachment, Lifecycle: lifecycle, Label: r.Label,
	})
}

// settle makes sure that a volume is published, and links a device.
func (m *Manager) settle(r *Request, u use) error {
	there, err := mounts.On(u.Target)
	if err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("CSI driver %s says that it published volume %s, but nothing is mounted at %s", r.Driver, r.Name, u.Target)
	}
	if !r.Block {
		return nil
	}
	link := m.disk.link(r.UID, r.Name)
	if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
		return err
	}
	if err := file.Remove(link); err != nil {
		return err
	}
	return os.Symlink(u.Target, link)
}

// give gives a published volume to the pod's group, unless the driver does.
func (m *Manager) give(r *Request, d *driver, u use) error {
	d.mu.Lock()
	applies := d.capabilities[csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP]
	d.mu.Unlock()
	if r.Block || r.FSGroup == nil || !r.GiveFSGroup || applies || r.ReadOnly {
		return nil
	}
	if err := m.cfg.Give(u.Target, r); err != nil {
		return fmt.Errorf("applyFSGroup failed for vol %s: %w", r.Handle, err)
	}
	return nil
}
