// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"log/slog"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/keyed"
	"github.com/sextant-node/sextant/pkg/mounts"
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
	// Size in bytes that it has on this node, where it is not staged; zero: not known.
	Size int64 `json:"size,omitempty"`
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
	// Label of SELinux that it is mounted with.
	Label string `json:"label,omitempty"`
	// Boot is the boot in which it was staged; empty: it may or may not be.
	Boot string `json:"boot,omitempty"`
	// Leaving: its unstaging has begun, which is while no pod has it published.
	Leaving bool `json:"leaving,omitempty"`
	// Size in bytes that it has on this node; zero: not known.
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
	uses   *ledger[use]    // by key
	stages *ledger[staged] // by volume
	turns  *keyed.Limit    // one at a time for a volume
	// busy is, by volume, the size in bytes that it cannot get while in use (int64).
	busy sync.Map
}

// New takes up the journal, and what is on disk beside it.
func New(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, disk: disk{cfg.Layout}, turns: keyed.NewLimit(1)}
	var err error
	if m.uses, err = openLedger(store.NewTable(cfg.Store, "csi-uses", store.JSON[use]())); err != nil {
		return nil, err
	}
	if m.stages, err = openLedger(store.NewTable(cfg.Store, "csi-stages", store.JSON[staged]())); err != nil {
		return nil, err
	}
	uses, stages := m.disk.found()
	for _, u := range uses {
		if _, ok := m.uses.get(u.key()); !ok {
			if err := m.uses.put(u.key(), u); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range stages {
		if _, ok := m.stages.get(s.volume()); !ok {
			if err := m.stages.put(s.volume(), s); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// usesOf lists what drivers may have published to a pod.
func (m *Manager) usesOf(uid types.UID) []use {
	return m.uses.list(func(u use) bool { return u.UID == uid })
}

// Uses reports whether drivers may have published anything to a pod.
func (m *Manager) Uses(uid types.UID) bool { return len(m.usesOf(uid)) > 0 }

// Standing reports whether a volume of a pod was published in this boot and is
// there still, and where.
func (m *Manager) Standing(uid types.UID, volume string) (path string, ok bool) {
	for _, u := range m.usesOf(uid) {
		if u.Volume == volume {
			return u.Target, m.stands(u)
		}
	}
	return "", false
}

func (m *Manager) stands(u use) bool {
	if u.Boot != m.cfg.Boot {
		return false
	}
	there, err := mounts.On(u.Target)
	return err == nil && there
}

// InUse lists the attachable volumes that drivers may have published or staged, by
// the attach controller's names.
func (m *Manager) InUse() []string {
	var all []string
	for _, u := range m.uses.list(func(u use) bool { return u.Attachable }) {
		all = append(all, UniqueName(u.volume()))
	}
	for _, s := range m.stages.list(func(staged) bool { return true }) {
		all = append(all, UniqueName(s.volume()))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// UniqueName is the attach controller's name of a volume "driver^handle".
func UniqueName(volume string) string { return plugin + "/" + volume }

// others lists the pods that use a volume, one excepted.
func (m *Manager) others(volume string, uid types.UID) []use {
	return m.uses.list(func(u use) bool { return u.volume() == volume && u.UID != uid })
}
