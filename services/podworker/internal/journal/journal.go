// SPDX-License-Identifier: Apache-2.0

// Package journal keeps podworker's decisions about each pod: admission,
// termination, back-offs, restart counts, and the specification last accepted; and
// how far the node is on its way down.
//
// What it promises. A record that Save returned for survives kill -9 and a power
// cut. A damaged file is set aside, and the journal starts empty: what runs is
// then adopted from the runtime's labels and annotations, and from config.
package journal

import (
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/store"
	"github.com/sextant-node/sextant/services/podworker/internal/shutdown"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// FileName of the journal below the service's state folder.
const FileName = "podworker.db"

// schema of the records.
const schema = 1

// Keys of the tables with one record.
const (
	configKey   = "kubelet"
	shutdownKey = "shutdown"
)

// Record is what is kept of one pod.
type Record struct {
	Facts step.Facts `json:"facts"`
	// Source of the pod: "file", "http" or "api".
	Source string `json:"source,omitempty"`
	// Pod as last accepted, Kubernetes protobuf; empty for an orphan.
	Pod []byte `json:"pod,omitempty"`
	// Namespace and Name, for a pod without a specification.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Decode reads the pod of a record; nil when there is none.
func (r Record) Decode() (*v1.Pod, error) {
	if len(r.Pod) == 0 {
		return nil, nil
	}
	p := &v1.Pod{}
	if err := p.Unmarshal(r.Pod); err != nil {
		return nil, fmt.Errorf("journaled pod %s/%s: %w", r.Namespace, r.Name, err)
	}
	return p, nil
}

// Journal is the open file.
type Journal struct {
	// Intact: it goes on from a previous process of the service, and has every pod
	// that anything was ever done about.
	Intact bool

	store  *store.Store
	pods   *store.Table[Record]
	config *store.Table[[]byte]
	node   *store.Table[shutdown.State]
}

// Open opens the journal. damage is not nil if a former file was set aside.
func Open(cfg store.Config) (j *Journal, damage *store.Damage, err error) {
	_, statErr := os.Stat(cfg.Path)
	cfg.Schema = schema
	s, damage, err := store.Open(cfg)
	if err != nil {
		return nil, damage, err
	}
	return &Journal{
		Intact: statErr == nil && damage == nil && s.State().Trouble == nil, store: s,
		pods: store.NewTable(s, "pods", store.JSON[Record]()),
		config: store.NewTable(s, "config", store.Codec[[]byte]{
			Marshal:   func(b []byte) ([]byte, error) { return b, nil },
			Unmarshal: func(b []byte) ([]byte, error) { return append([]byte(nil), b...), nil },
		}),
		node: store.NewTable(s, "node", store.JSON[shutdown.State]()),
	}, damage, nil
}

// All reads every record.
func (j *Journal) All() (map[types.UID]Record, error) {
	all, err := j.pods.All()
	if err != nil {
		return nil, err
	}
	records := make(map[types.UID]Record, len(all))
	for uid, r := range all {
		records[types.UID(uid)] = r
	}
	return records, nil
}

// Save writes a record; it is on the disk when Save returns nil.
func (j *Journal) Save(uid types.UID, r Record) error { return j.pods.Put(string(uid), r) }

// Forget removes a record.
func (j *Journal) Forget(uid types.UID) error { return j.pods.Delete(string(uid)) }

// SaveConfig keeps the configuration that was read last.
func (j *Journal) SaveConfig(raw []byte) error { return j.config.Put(configKey, raw) }

// Config is the configuration that was read last; nil for none.
func (j *Journal) Config() ([]byte, error) {
	raw, ok, err := j.config.Get(configKey)
	if err != nil || !ok {
		return nil, err
	}
	return raw, nil
}

// SaveShutdown keeps how far the node is on its way down.
func (j *Journal) SaveShutdown(s shutdown.State) error { return j.node.Put(shutdownKey, s) }

// Shutdown is how far the node is, or was, on its way down.
func (j *Journal) Shutdown() (shutdown.State, error) {
	s, _, err := j.node.Get(shutdownKey)
	return s, err
}

// Close closes the file; kill -9 does as well.
func (j *Journal) Close() error { return j.store.Close() }
