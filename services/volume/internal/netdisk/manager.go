// SPDX-License-Identifier: Apache-2.0

package netdisk

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/keyed"
	"github.com/sextant-node/sextant/pkg/store"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// Tools is who has disks here and lets go of them; supervisorv1.ToolsServiceClient is
// the real one.
type Tools interface {
	StageDisk(ctx context.Context, r *supervisorv1.StageDiskRequest, o ...grpc.CallOption) (*supervisorv1.StageDiskResponse, error)
	UnstageDisk(ctx context.Context, r *supervisorv1.UnstageDiskRequest, o ...grpc.CallOption) (*supervisorv1.UnstageDiskResponse, error)
}

// use is a disk that a pod has, or is about to have; without a UID one that is on the node,
// or may be, for pods that have gone.
type use struct {
	UID    types.UID `json:"uid"`
	Volume string    `json:"volume"` // in the pod; the disk's names without one
	Disk   Disk      `json:"disk"`
	// Device of a block volume, and the boot it has that name in.
	Device string `json:"device,omitempty"`
	Boot   string `json:"boot,omitempty"`
}

func (u *use) key() string { return string(u.UID) + "/" + u.Volume }

// Manager has disks on this node for those who use them. Safe for concurrent use.
type Manager struct {
	tools Tools
	boot  string
	uses  *store.Table[use]
	turns *keyed.Limit // for disks that share sessions
	moves sync.Mutex   // held while a disk changes between pods and what is left

	mu   sync.Mutex
	used map[string]use
}

// New takes up the journal. boot tells this boot of the machine from others.
func New(file *store.Store, tools Tools, boot string) (*Manager, error) {
	uses := store.NewTable(file, "disk-uses", store.JSON[use]())
	used, err := uses.All()
	return &Manager{tools: tools, boot: boot, uses: uses, used: used, turns: keyed.NewLimit(1)}, err
}

func (m *Manager) put(u use) error {
	m.mu.Lock()
	had, ok := m.used[u.key()]
	m.mu.Unlock()
	if ok && had.Device == u.Device && had.Boot == u.Boot && had.Disk.id() == u.Disk.id() {
		return nil
	}
	if err := m.uses.Put(u.key(), u); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[u.key()] = u
	return nil
}

// Note keeps that a pod has a disk that is mounted for it already.
func (m *Manager) Note(uid types.UID, volume string, a *Asked) error {
	return m.put(use{UID: uid, Volume: volume, Disk: a.Disk})
}

// Stage has a disk on this node for a volume of a pod. It returns where it is mounted,
// or its device for a block volume.
func (m *Manager) Stage(ctx context.Context, uid types.UID, volume string, a *Asked, discovery, session *supervisorv1.CHAP) (string, error) {
	end, err := m.turns.Enter(ctx, turn(&a.Disk))
	if err != nil {
		return "", err
	}
	defer end()
	u := use{UID: uid, Volume: volume, Disk: a.Disk}
	if err := m.put(u); err != nil {
		return "", err
	}
	if err := fault.Hit(ctx, "volume.disk.stage"); err != nil {
		return "", err
	}
	resp, err := m.tools.StageDisk(ctx, &supervisorv1.StageDiskRequest{
		Disk: a.wire(), Block: a.Block, FsType: a.FSType, ReadOnly: a.ReadOnly, Options: a.Options, Discovery: discovery, Session: session,
	})
	if err != nil || !a.Block {
		return resp.GetPath(), err
	}
	u.Device, u.Boot = resp.GetDevice(), m.boot
	return u.Device, m.put(u)
}

func turn(d *Disk) string {
	if s := d.session(); s != "" {
		return s
	}
	return d.id()
}

// Device is that of a block volume of a pod, if it was staged in this boot.
func (m *Manager) Device(uid types.UID, volume string) (device string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.used[string(uid)+"/"+volume]
	return u.Device, u.Device != "" && u.Boot == m.boot
}

// InUse lists the attach controller's names of the disks that pods have, or that are on the
// node for those that have gone.
func (m *Manager) InUse() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.used {
		names = append(names, u.Disk.AttachName())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Uses reports whether a pod has disks, or is about to.
func (m *Manager) Uses(uid types.UID) bool { return len(m.of(uid)) > 0 }

func (m *Manager) of(uid types.UID) (all []use) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.used {
		if u.UID == uid {
			all = append(all, u)
		}
	}
	return all
}

// Release takes a pod's disks from it. Their mounts in the pod must be gone. What no pod
// has then stays on the node, and in use, until it is reaped: a pod does not wait for that,
// as with the kubelet.
func (m *Manager) Release(uid types.UID) error {
	m.moves.Lock()
	defer m.moves.Unlock()
	for _, u := range m.of(uid) {
		// By both names: the attach controller may know one disk by several.
		left := use{Volume: u.Disk.AttachName() + " " + u.Disk.id(), Disk: u.Disk}
		if err := m.put(left); err != nil {
			return err
		}
		if err := m.drop(&u); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) drop(u *use) error {
	if err := m.uses.Delete(u.key()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.used, u.key())
	return nil
}

// Left lists the disks that are on the node for pods that have gone.
func (m *Manager) Left() (disks []string) {
	for _, u := range m.of("") {
		disks = append(disks, u.key())
	}
	return disks
}

// Reap lets go of a disk that is left, unless a pod has it by now.
func (m *Manager) Reap(ctx context.Context, disk string) error {
	m.mu.Lock()
	u, ok := m.used[disk]
	m.mu.Unlock()
	if !ok {
		return nil
	}
	end, err := m.turns.Enter(ctx, turn(&u.Disk))
	if err != nil {
		return err
	}
	defer end()
	session, had, err := m.had(&u)
	if err != nil || had {
		return err
	}
	if err := fault.Hit(ctx, "volume.disk.unstage"); err != nil {
		return err
	}
	if _, err := m.tools.UnstageDisk(ctx, &supervisorv1.UnstageDiskRequest{Disk: u.Disk.wire(), KeepSession: session}); err != nil {
		return fmt.Errorf("UnmountDevice failed: %w", err)
	}
	return m.drop(&u)
}

// had drops a disk that is left if a pod has it, which is to leave it again; else it reports
// whether another disk has the same sessions.
func (m *Manager) had(left *use) (session, had bool, err error) {
	m.moves.Lock()
	defer m.moves.Unlock()
	if had, session = m.others(left); had {
		err = m.drop(left)
	}
	return session, had, err
}

// others reports whether a pod has the same disk, and whether another disk has the same
// sessions.
func (m *Manager) others(of *use) (had, session bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.used {
		switch {
		case u.Disk.id() == of.Disk.id():
			had = had || u.UID != ""
		case u.Disk.session() != "":
			session = session || u.Disk.session() == of.Disk.session()
		}
	}
	return had, session
}
