// SPDX-License-Identifier: Apache-2.0

// Package journal keeps what status cannot re-derive: the last status of each pod
// and of the node, how far each feed of events was recorded, and the configuration and
// the credential to start with until config answers.
//
// Writing is behind: what is put is on disk within a fraction of a second, many
// records in one flush, and nothing waits for the disk. What a crash takes with it
// is rendered again from the feeds; only the previous status it is based on (times
// of transitions, containers that are gone since) may be that much older.
package journal

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/store"
)

// Delay is how long records are gathered before they are flushed together.
const Delay = 200 * time.Millisecond

// schema of the file.
const schema = 1

// Pod is the last status of a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Status is v1.PodStatus in Kubernetes protobuf.
	Status []byte `json:"status"`
}

// Decode reads the status.
func (p Pod) Decode() (*v1.PodStatus, error) {
	status := &v1.PodStatus{}
	if err := status.Unmarshal(p.Status); err != nil {
		return nil, fmt.Errorf("journaled status of %s/%s: %w", p.Namespace, p.Name, err)
	}
	return status, nil
}

// Node is the last status of the node.
type Node struct {
	// Status is v1.NodeStatus in Kubernetes protobuf.
	Status []byte `json:"status"`
}

// Journal is the open file. Safe for concurrent use.
type Journal struct {
	store   *store.Store
	pods    *store.Table[Pod]
	nodes   *store.Table[Node]
	cursors *store.Table[feed.Revision]
	configs *store.Table[[]byte]

	*store.Behind
}

// Open opens or makes the file.
func Open(cfg store.Config) (*Journal, *store.Damage, error) {
	cfg.Schema = schema
	s, damage, err := store.Open(cfg)
	if err != nil {
		return nil, damage, err
	}
	return &Journal{
		store: s, Behind: store.NewBehind(store.BehindConfig{Delay: Delay, Log: cfg.Log}),
		pods:    store.NewTable(s, "pods", store.JSON[Pod]()),
		nodes:   store.NewTable(s, "node", store.JSON[Node]()),
		cursors: store.NewTable(s, "cursors", store.JSON[feed.Revision]()),
		configs: store.NewTable(s, "config", store.JSON[[]byte]()),
	}, damage, nil
}

// Pods reads the journaled statuses by UID.
func (j *Journal) Pods() (map[string]Pod, error) { return j.pods.All() }

// PutPod remembers the status of a pod.
func (j *Journal) PutPod(uid string, p Pod) {
	j.put("pods/"+uid, func() error { return j.pods.Put(uid, p) })
}

// DropPod forgets a pod.
func (j *Journal) DropPod(uid string) {
	j.put("pods/"+uid, func() error { return j.pods.Delete(uid) })
}

// Node reads the journaled status of a node, nil without one.
func (j *Journal) Node(name string) (*v1.NodeStatus, error) {
	record, ok, err := j.nodes.Get(name)
	if err != nil || !ok {
		return nil, err
	}
	status := &v1.NodeStatus{}
	if err := status.Unmarshal(record.Status); err != nil {
		return nil, fmt.Errorf("journaled status of node %s: %w", name, err)
	}
	return status, nil
}

// PutNode remembers the status of the node.
func (j *Journal) PutNode(name string, status *v1.NodeStatus) error {
	data, err := status.Marshal()
	if err != nil {
		return fmt.Errorf("node status: %w", err)
	}
	j.put("node/"+name, func() error { return j.nodes.Put(name, Node{Status: data}) })
	return nil
}

// Cursor is how far a feed was recorded; zero for nothing yet.
func (j *Journal) Cursor(name string) (feed.Revision, error) {
	revision, _, err := j.cursors.Get(name)
	return revision, err
}

// PutCursor remembers how far a feed was recorded.
func (j *Journal) PutCursor(name string, revision feed.Revision) {
	j.put("cursors/"+name, func() error { return j.cursors.Put(name, revision) })
}

func (j *Journal) put(key string, write func() error) {
	j.Put(key, func(context.Context) error { return write() })
}

// Close closes the file.
func (j *Journal) Close() error { return j.store.Close() }
