package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/store"
)

// use is a volume published to a pod, or about to be, as the journal keeps it.
type use struct {
	UID types.UID `json:"uid"`
	// Volume is the name in the pod; empty for one found on disk.
	Volume     string `json:"volume,omitempty"`
	Name       string `json:"name"`
	Driver     string `json:"driver"`
	Handle     string `json:"handle"`
	Inline     bool   `json:"inline,omitempty"`
	Attachable bool   `json:"attachable,omitempty"`
	Block      bool   `json:"block,omitempty"`
	Exclusive  bool   `json:"exclusive,omitempty"`
	Target     string `json:"target"`
	// Boot is the boot in which it was published; empty: it may or may not be.
	Boot string `json:"boot,omitempty"`
}

func (u *use) key() string    { return string(u.UID) + "/" + u.Name }
func (u *use) volume() string { return u.Driver + "^" + u.Handle }

// staged is a volume staged on the node, or about to be, as the journal keeps it.
type staged struct {
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	Path   string `json:"path"`
	Block  bool   `json:"block,omitempty"`
	// Name of a block volume on disk.
	Name string `json:"name,omitempty"`
	// Boot is the boot in which it was staged; empty: it may or may not be.
	Boot string `json:"boot,omitempty"`
	// Size it was last expanded to.
	Size int64 `json:"size,omitempty"`
}

func (s *staged) volume() string { return s.Driver + "^" + s.Handle }

// Config of a manager.
type Config struct {
	Layout  pod.Layout
	Drivers *Drivers
	Store   *store.Store
	// Give gives a published volume to a group.
	Give func(path string, r *Request) error
	// Boot tells this boot of the machine from others.
	Boot string
	Log  *slog.Logger
}

// Manager has drivers do what pods need. Safe for concurrent use.
type Manager struct {
	cfg    Config
	disk   disk
	uses   *store.Table[use]
	stages *store.Table[staged]
	turns  turns // one at a time for a volume

	mu       sync.Mutex
	used     map[string]use    // by key
	stagings map[string]staged // by volume
}

// New takes up the journal, and what is on disk beside it.
func New(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, disk: disk{cfg.Layout}}
	var err error
	if m.uses, err = store.NewTable(cfg.Store, "csi-uses", store.JSON[use]()); err != nil {
		return nil, err
	}
	if m.stages, err = store.NewTable(cfg.Store, "csi-stages", store.JSON[staged]()); err != nil {
		return nil, err
	}
	if m.used, err = m.uses.All(); err != nil {
		return nil, err
	}
	if m.stagings, err = m.stages.All(); err != nil {
		return nil, err
	}
	uses, stages := m.disk.found()
	for _, u := range uses {
		if _, ok := m.used[u.key()]; !ok {
			if err := m.putUse(u); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range stages {
		if _, ok := m.stagings[s.volume()]; !ok {
			if err := m.putStaged(s); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

func (m *Manager) putUse(u use) error {
	if err := m.uses.Put(u.key(), u); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[u.key()] = u
	return nil
}

func (m *Manager) putStaged(s staged) error {
	if err := m.stages.Put(s.volume(), s); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stagings[s.volume()] = s
	return nil
}

// Uses tells whether drivers may have published anything to a pod.
func (m *Manager) Uses(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.used {
		if u.UID == uid {
			return true
		}
	}
	return false
}

// Standing tells whether a volume of a pod was published in this boot and is
// there still, and where.
func (m *Manager) Standing(uid types.UID, volume string) (path string, ok bool) {
	m.mu.Lock()
	var found use
	for _, u := range m.used {
		if u.UID == uid && u.Volume == volume {
			found, ok = u, true
		}
	}
	m.mu.Unlock()
	return found.Target, ok && m.stands(found)
}

func (m *Manager) stands(u use) bool {
	if u.Boot != m.cfg.Boot {
		return false
	}
	there, err := mountedAt(u.Target)
	return err == nil && there
}

// InUse lists the attachable volumes that drivers may have published or staged, by
// the attach controller's names.
func (m *Manager) InUse() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	set := map[string]bool{}
	for _, u := range m.used {
		if u.Attachable {
			set[u.volume()] = true
		}
	}
	for name := range m.stagings {
		set[name] = true
	}
	var all []string
	for name := range set {
		all = append(all, UniqueName(name))
	}
	slices.Sort(all)
	return all
}

// UniqueName is the attach controller's name of a volume "driver^handle".
func UniqueName(volume string) string { return plugin + "/" + volume }

// others lists the pods that use a volume, one excepted.
func (m *Manager) others(volume string, uid types.UID) (all []use) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.used {
		if u.volume() == volume && u.UID != uid {
			all = append(all, u)
		}
	}
	return all
}

// Mount makes sure that a volume is published to a pod, and returns where. It may
// be called again and again.
func (m *Manager) Mount(ctx context.Context, r *Request) (path string, err error) {
	if problem := checkName(r.Name); problem != nil {
		return "", problem
	}
	defer m.turns.take(r.volume())()
	u := use{
		UID: r.UID, Volume: r.Volume, Name: r.Name, Driver: r.Driver, Handle: r.Handle, Inline: r.Inline,
		Attachable: r.Attachable, Block: r.Block, Exclusive: r.Exclusive, Target: m.disk.target(r),
	}
	m.mu.Lock()
	had, known := m.used[u.key()]
	m.mu.Unlock()
	if known && had.volume() != u.volume() {
		return "", fmt.Errorf("volume %s of the pod is %s, and was %s: it is not changed under a pod", r.Name, u.volume(), had.volume())
	}
	standing := known && m.stands(had)
	if standing && !r.Republish {
		return u.Target, m.grow(ctx, r, u.Target)
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
		// The intent to publish comes first: what is staged is somebody's.
		if err := m.putUse(u); err != nil {
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
	if standing {
		return u.Target, nil
	}
	if err := m.settle(r, d, u); err != nil {
		return "", err
	}
	u.Boot = m.cfg.Boot
	return u.Target, m.putUse(u)
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
	s := staged{Driver: r.Driver, Handle: r.Handle, Path: m.disk.stage(r), Block: r.Block}
	if r.Block {
		s.Name = r.Name
	}
	m.mu.Lock()
	had := m.stagings[r.volume()]
	m.mu.Unlock()
	if had.Boot == m.cfg.Boot && had.Path == s.Path {
		return s.Path, m.growStaged(ctx, d, r, had)
	}
	if err := m.putStaged(s); err != nil {
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
	if err := m.putStaged(s); err != nil {
		return "", err
	}
	return s.Path, m.growStaged(ctx, d, r, s)
}

func (m *Manager) prepareStage(r *Request, s staged) error {
	if err := os.MkdirAll(s.Path, 0o750); err != nil {
		return err
	}
	data := volData{Handle: r.Handle, Driver: r.Driver}
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
		m.mu.Lock()
		s, ok := m.stagings[r.volume()]
		m.mu.Unlock()
		if ok && !standing {
			s.Boot = ""
			err = errors.Join(err, m.putStaged(s))
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
		Name: r.Name, Handle: r.Handle, Driver: r.Driver, Node: r.Node, Attachment: r.Attachment, Lifecycle: lifecycle,
	})
}

// settle does what is the node's to do with a published volume.
func (m *Manager) settle(r *Request, d *driver, u use) error {
	there, err := mountedAt(u.Target)
	if err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("CSI driver %s says that it published volume %s, but nothing is mounted at %s", r.Driver, r.Name, u.Target)
	}
	if r.Block {
		link := m.disk.link(r.UID, r.Name)
		if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
			return err
		}
		if err := remove(link); err != nil {
			return err
		}
		return os.Symlink(u.Target, link)
	}
	d.mu.Lock()
	applies := d.capabilities[csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP]
	d.mu.Unlock()
	if r.FSGroup == nil || !r.GiveFSGroup || applies || r.ReadOnly {
		return nil
	}
	if err := m.cfg.Give(u.Target, r); err != nil {
		return fmt.Errorf("applyFSGroup failed for vol %s: %w", r.Handle, err)
	}
	return nil
}

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

// Unmount takes all volumes of drivers away from a pod, and unstages those that
// nobody else uses. It goes on with the others when one fails.
func (m *Manager) Unmount(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	var mine []use
	for _, u := range m.used {
		if u.UID == uid {
			mine = append(mine, u)
		}
	}
	m.mu.Unlock()
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
	defer m.turns.take(u.volume())()
	d, err := m.cfg.Drivers.get(u.Driver)
	if err != nil {
		return fmt.Errorf("UnmountVolume.TearDown failed: %w", err)
	}
	if u.Boot != "" {
		u.Boot = ""
		if err := m.putUse(u); err != nil {
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
		if err := remove(m.disk.link(u.UID, u.Name)); err != nil {
			return err
		}
	}
	if len(m.others(u.volume(), u.UID)) == 0 {
		if err := m.unstage(ctx, d, u.volume()); err != nil {
			return err
		}
		if u.Block {
			if err := m.forgetDevice(u.Name); err != nil {
				return err
			}
		}
	}
	if err := m.uses.Delete(u.key()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.used, u.key())
	return nil
}

// unstage has the driver let go of a volume. Callers hold its turn.
func (m *Manager) unstage(ctx context.Context, d *driver, volume string) error {
	m.mu.Lock()
	s, ok := m.stagings[volume]
	m.mu.Unlock()
	if !ok {
		return nil
	}
	if s.Boot != "" {
		s.Boot = ""
		if err := m.putStaged(s); err != nil {
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
		if err := m.forgetDevice(s.Name); err != nil {
			return err
		}
	}
	if err := m.stages.Delete(volume); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.stagings, volume)
	return nil
}

// forgetDevice removes the folders of a block volume that nobody uses.
func (m *Manager) forgetDevice(name string) error {
	dir := filepath.Join(m.disk.devices(), name)
	return errors.Join(
		remove(filepath.Join(dir, "data", dataFile)), remove(filepath.Join(dir, "data")), remove(dir),
		remove(filepath.Join(m.disk.devices(), "publish", name)),
	)
}

// Reap unstages the volumes of a driver that no pod uses: a life of this service
// ended between the last pod and the unstaging, or another agent left them.
func (m *Manager) Reap(ctx context.Context, name string) error {
	d, err := m.cfg.Drivers.get(name)
	if err != nil {
		return nil //nolint:nilerr // when it is back, it is reaped
	}
	m.mu.Lock()
	var all []staged
	for _, s := range m.stagings {
		if s.Driver == name {
			all = append(all, s)
		}
	}
	m.mu.Unlock()
	var failed []error
	for _, s := range all {
		failed = append(failed, m.reap(ctx, d, s.volume()))
	}
	return errors.Join(failed...)
}

func (m *Manager) reap(ctx context.Context, d *driver, volume string) error {
	defer m.turns.take(volume)()
	if len(m.others(volume, "")) > 0 {
		return nil
	}
	return m.unstage(ctx, d, volume)
}
