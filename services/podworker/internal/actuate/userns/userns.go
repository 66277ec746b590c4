// Package userns gives each pod with hostUsers: false a range of user and group
// ids of its own (KEP-127).
//
// It owns the file pods/<uid>/userns, in the kubelet's form: writing it is how a
// range is taken, removing it (with the pod's directory) how it is given back.
// There is no other state, so after kill -9 the files are read again.
package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/pod"
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

// Manager hands ranges out. Safe for concurrent use.
type Manager struct {
	layout pod.Layout
	ids    func() (Range, error)

	mu sync.Mutex
}

// New makes a manager for the pods below a layout.
func New(layout pod.Layout) *Manager {
	return &Manager{layout: layout, ids: subordinate}
}

// Get is the mapping of a pod: the recorded one, or else a new range of length
// ids, aligned to that length, which no other pod on the disk holds.
func (m *Manager) Get(uid types.UID, length uint32) (*runtimeapi.UserNamespace, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, err := m.read(uid); err == nil {
		return namespace(r), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all, err := m.host(length)
	if err != nil {
		return nil, err
	}
	taken, err := m.taken()
	if err != nil {
		return nil, err
	}
	free, err := Free(all, length, taken)
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

func (m *Manager) host(length uint32) (Range, error) {
	r, err := m.ids()
	if err != nil {
		return r, err
	}
	if r == (Range{}) {
		// Nobody set ids aside: all above the node's own.
		return Range{First: length, Length: ^uint32(0) - length + 1}, nil
	}
	return r, nil
}

// Free finds the lowest block of length ids, aligned to length, inside all and
// apart from what is taken.
func Free(all Range, length uint32, taken []Range) (Range, error) {
	if length == 0 {
		return Range{}, errors.New("userNamespaces.idsPerPod: must not be 0")
	}
	end := uint64(all.First) + uint64(all.Length)
	first := (uint64(all.First) + uint64(length) - 1) / uint64(length) * uint64(length)
	for ; first+uint64(length) <= end; first += uint64(length) {
		candidate := Range{uint32(first), length}
		if !overlapsAny(candidate, taken) {
			return candidate, nil
		}
	}
	return Range{}, errors.New("no user namespace range is left on this node")
}

func overlapsAny(r Range, others []Range) bool {
	for _, o := range others {
		if uint64(r.First) < uint64(o.First)+uint64(o.Length) && uint64(o.First) < uint64(r.First)+uint64(r.Length) {
			return true
		}
	}
	return false
}

func (m *Manager) taken() ([]Range, error) {
	dirs, err := os.ReadDir(m.layout.Pods())
	if err != nil {
		return nil, fmt.Errorf("user namespaces in use: %w", err)
	}
	var taken []Range
	for _, d := range dirs {
		r, err := m.read(types.UID(d.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, one := range append(r.UIDs, r.GIDs...) {
			taken = append(taken, Range{one.HostID, one.Length})
		}
	}
	return taken, nil
}

func (m *Manager) read(uid types.UID) (record, error) {
	var r record
	data, err := os.ReadFile(m.layout.UserNamespace(uid))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s: %w", m.layout.UserNamespace(uid), err)
	}
	if len(r.UIDs) == 0 || len(r.GIDs) == 0 {
		return r, fmt.Errorf("%s: no mappings", m.layout.UserNamespace(uid))
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
// when nobody set any aside.
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
		return Range{}, fmt.Errorf("subordinate ids %q: want one line of four fields", output)
	}
	first, err := strconv.ParseUint(fields[2], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("subordinate ids %q: %w", output, err)
	}
	length, err := strconv.ParseUint(fields[3], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("subordinate ids %q: %w", output, err)
	}
	return Range{uint32(first), uint32(length)}, nil
}
