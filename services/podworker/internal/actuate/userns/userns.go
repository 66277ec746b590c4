// SPDX-License-Identifier: Apache-2.0

// Package userns gives each pod with hostUsers: false a range of user and group
// ids of its own (KEP-127).
//
// It owns the file pods/<uid>/userns, in the kubelet's form: writing it is how a
// range is taken, removing it (with the pod's directory) how it is given back.
// There is no other state, so after kill -9 the files are read again. For a file that
// cannot be read the runtime is asked: what its sandbox has stays that pod's. A range that
// neither tells is not known; then ranges are taken from the upper end, as long as it
// lasts, since all others were taken from the lower one.
package userns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/quiet"
)

// Range is host ids [First, First+Length).
type Range struct{ First, Length uint32 }

// record is the file's content.
type record struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

// Sandbox is the mapping of a pod's sandbox that is there, as the runtime has it: nil where
// there is no sandbox. The error is that the runtime does not tell.
type Sandbox func(ctx context.Context, uid types.UID) (*runtimeapi.UserNamespace, error)

// Manager hands ranges out. Safe for concurrent use.
type Manager struct {
	layout  pod.Layout
	sandbox Sandbox
	log     *slog.Logger
	ids     func() (Range, error)

	mu sync.Mutex
}

// New makes a manager for the pods below a layout.
func New(layout pod.Layout, sandbox Sandbox, log *slog.Logger) *Manager {
	return &Manager{layout: layout, sandbox: sandbox, log: log, ids: subordinate}
}

// Get is the mapping of a pod: the recorded one, that of its sandbox where the record
// cannot be read, or else a new range of length ids, aligned to that length, which no
// other pod on the disk holds.
func (m *Manager) Get(ctx context.Context, uid types.UID, length uint32) (*runtimeapi.UserNamespace, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own, state := m.known(ctx, uid)
	if state == recorded {
		return namespace(own), nil
	}
	if state == running {
		return namespace(own), m.write(uid, own)
	}
	all, err := m.host(length)
	if err != nil {
		return nil, err
	}
	taken, whole, err := m.taken(ctx, uid)
	if err != nil {
		return nil, err
	}
	from := lowest
	if !whole || state == unknown {
		from = highest
	}
	free, err := free(all, length, taken, from)
	if err != nil {
		return nil, err
	}
	one := []mapping{{HostID: free.First, Length: free.Length}}
	r := record{UIDs: one, GIDs: one}
	if err := m.write(uid, r); err != nil {
		return nil, err
	}
	return namespace(r), nil
}

// knowledge is what is known of a pod's range.
type knowledge int

const (
	none     knowledge = iota // it has none
	recorded                  // its record says it
	running                   // its sandbox says it, and its record does not
	unknown                   // it may have one
)

// known is the range of a pod, where it is known.
func (m *Manager) known(ctx context.Context, uid types.UID) (record, knowledge) {
	r, err := m.read(uid)
	if err == nil {
		return r, recorded
	}
	if errors.Is(err, fs.ErrNotExist) {
		return r, none
	}
	ns, runtimeErr := m.sandbox(ctx, uid)
	if runtimeErr != nil {
		m.log.Error("user namespace of a pod is not known", "uid", string(uid), "error", errors.Join(err, runtimeErr).Error())
		return record{}, unknown
	}
	m.log.Warn("record of a user namespace cannot be read", "uid", string(uid), "running", ns != nil, "error", err.Error())
	if ns == nil {
		return record{}, none // nothing runs with it
	}
	return record{UIDs: mappings(ns.GetUids()), GIDs: mappings(ns.GetGids())}, running
}

func (m *Manager) host(length uint32) (Range, error) {
	r, err := m.ids()
	if err != nil {
		return r, err
	}
	if r == (Range{}) {
		// No ids are set aside: all above the node's own.
		return Range{First: length, Length: ^uint32(0) - length + 1}, nil
	}
	return r, nil
}

// end is where the search for a free range begins.
type end int

const (
	lowest end = iota
	highest
)

// free finds the lowest or highest block of length ids, aligned to length, inside all and
// apart from what is taken.
func free(all Range, length uint32, taken []Range, from end) (Range, error) {
	if length == 0 {
		return Range{}, errors.New("userNamespaces.idsPerPod: must not be 0")
	}
	size := uint64(length)
	first := (uint64(all.First) + size - 1) / size
	after := (uint64(all.First) + uint64(all.Length)) / size // of the last block
	for i := first; i < after; i++ {
		block := i
		if from == highest {
			block = after - 1 - (i - first)
		}
		if candidate := (Range{uint32(block * size), length}); !overlapsAny(candidate, taken) {
			return candidate, nil
		}
	}
	return Range{}, errors.New("no user namespace range is left on this node")
}

func overlapsAny(r Range, others []Range) bool {
	return slices.ContainsFunc(others, func(o Range) bool {
		return uint64(r.First) < uint64(o.First)+uint64(o.Length) && uint64(o.First) < uint64(r.First)+uint64(r.Length)
	})
}

// taken are the ranges of all pods but one; whole says that none is unknown.
func (m *Manager) taken(ctx context.Context, but types.UID) (taken []Range, whole bool, err error) {
	dirs, err := os.ReadDir(m.layout.Pods())
	if err != nil {
		return nil, false, fmt.Errorf("user namespaces in use: %w", err)
	}
	whole = true
	for _, d := range dirs {
		if d.Name() == string(but) {
			continue
		}
		r, state := m.known(ctx, types.UID(d.Name()))
		whole = whole && state != unknown
		for _, one := range append(r.UIDs, r.GIDs...) {
			taken = append(taken, Range{one.HostID, one.Length})
		}
	}
	return taken, whole, nil
}

func (m *Manager) read(uid types.UID) (record, error) {
	f, err := os.Open(m.layout.UserNamespace(uid))
	if err != nil {
		return record{}, err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return record{}, err
	}
	r, err := parseRecord(data)
	if err != nil {
		return r, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return r, nil
}

const (
	// maxRecord is how much of a record is read, in bytes; it has some 150.
	maxRecord = 64 << 10
	// unit of ranges: idsPerPod is a multiple of it, and the node's own ids are below it.
	unit = 1 << 16
)

// parseRecord reads a record. It has the one form that is written, here and by the
// kubelet: another could make a pod's root the node's.
func parseRecord(data []byte) (record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, errors.New("not the JSON of user namespace mappings")
	}
	if len(r.UIDs) != 1 || !slices.Equal(r.UIDs, r.GIDs) {
		return record{}, errors.New("want one mapping of uids, and the same of gids")
	}
	m := r.UIDs[0]
	switch {
	case m.ContainerID != 0:
		return record{}, fmt.Errorf("containerId: %d, must be 0", m.ContainerID)
	case m.Length == 0 || m.Length%unit != 0:
		return record{}, fmt.Errorf("length: %d, must be a multiple of %d", m.Length, unit)
	case m.HostID == 0 || m.HostID%unit != 0 || uint64(m.HostID)+uint64(m.Length) > 1<<32:
		return record{}, fmt.Errorf("hostId: %d, must be a multiple of %d, with room for %d ids", m.HostID, unit, m.Length)
	}
	return r, nil
}

// write makes the file whole or not at all.
func (m *Manager) write(uid types.UID, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := file.Replace(m.layout.UserNamespace(uid), data, 0o644); err != nil {
		return fmt.Errorf("record user namespace: %w", err)
	}
	return nil
}

func namespace(r record) *runtimeapi.UserNamespace {
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids(r.UIDs), Gids: ids(r.GIDs)}
}

func mappings(list []*runtimeapi.IDMapping) []mapping {
	var out []mapping
	for _, m := range list {
		out = append(out, mapping{HostID: m.GetHostId(), ContainerID: m.GetContainerId(), Length: m.GetLength()})
	}
	return out
}

func ids(list []mapping) []*runtimeapi.IDMapping {
	var out []*runtimeapi.IDMapping
	for _, m := range list {
		out = append(out, &runtimeapi.IDMapping{HostId: m.HostID, ContainerId: m.ContainerID, Length: m.Length})
	}
	return out
}

// owner is whose subordinate ids pods use, as with the kubelet.
const owner = "kubelet"

// subordinate asks the system for the ids set aside for pods; the zero Range
// when none are set aside.
func subordinate() (Range, error) {
	if _, err := user.Lookup(owner); err != nil {
		var unknown user.UnknownUserError
		if errors.As(err, &unknown) {
			return Range{}, nil
		}
		return Range{}, fmt.Errorf("subordinate ids: %w", err)
	}
	tool, err := exec.LookPath("getsubids")
	if errors.Is(err, exec.ErrNotFound) {
		return Range{}, nil
	}
	if err != nil {
		return Range{}, fmt.Errorf("subordinate ids: %w", err)
	}
	uids, err := exec.Command(tool, owner).Output()
	if err != nil {
		return Range{}, fmt.Errorf("subordinate uids of %s: %w", owner, err)
	}
	gids, err := exec.Command(tool, "-g", owner).Output()
	if err != nil {
		return Range{}, fmt.Errorf("subordinate gids of %s: %w", owner, err)
	}
	if string(uids) != string(gids) {
		return Range{}, fmt.Errorf("subordinate uids and gids of %s differ", owner)
	}
	return parse(string(uids))
}

// parse reads the one line "0: kubelet 65536 2147483648".
func parse(output string) (Range, error) {
	fields := strings.Fields(output)
	if strings.Count(strings.TrimSpace(output), "\n") > 0 || len(fields) != 4 {
		return Range{}, fmt.Errorf("subordinate ids %q: want one line of four fields", quiet.Cut(output, 256))
	}
	first, err := strconv.ParseUint(fields[2], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("subordinate ids %q: want numbers of 32 bits", quiet.Cut(output, 256))
	}
	length, err := strconv.ParseUint(fields[3], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("subordinate ids %q: want numbers of 32 bits", quiet.Cut(output, 256))
	}
	if first+length > 1<<32 {
		return Range{}, fmt.Errorf("subordinate ids %q: they end above 32 bits", quiet.Cut(output, 256))
	}
	return Range{uint32(first), uint32(length)}, nil
}
