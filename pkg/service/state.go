// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/store"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

// Reasons of the Node's events about durable files.
const (
	// ReasonDamaged: a file was damaged and is set aside.
	ReasonDamaged = "StateFileDamaged"
	// ReasonNotWritten: the disk takes no writes, records are in memory only.
	ReasonNotWritten = "StateFileNotWritten"
	// ReasonWritten: it takes them again.
	ReasonWritten = "StateFileWritten"
)

// StateDir is the folder of the process's durable state.
func (k *Kit) StateDir() string { return k.Paths.StateOf(k.Service) }

// StoreConfig is how the process opens a durable file below its state folder. Faults of
// the file, then and later, are reported by an event about the Node, in the metrics and
// in Hello; the caller adds the schema.
func (k *Kit) StoreConfig(name string) store.Config {
	return store.Config{Path: filepath.Join(k.StateDir(), name), Log: k.Log, Changed: k.files.changed}
}

// Tell emits an event about the Node, whose name status fills in. Before Events or
// TellBy was called it is queued.
func (k *Kit) Tell(kind, reason, message string) { k.notices.emit(notice{kind, reason, message}) }

// TellBy is for the service that writes events itself.
func (k *Kit) TellBy(tell func(kind, reason, message string)) { k.notices.by(tell) }

// notice is an event about the node.
type notice struct{ kind, reason, message string }

// notices emit events about the node, once there is a way to. Safe for concurrent use.
type notices struct {
	mu     sync.Mutex
	send   func(kind, reason, message string) // nil: none yet
	queued []notice
}

func (n *notices) emit(one notice) {
	n.mu.Lock()
	send := n.send
	if send == nil {
		n.queued = append(n.queued, one)
	}
	n.mu.Unlock()
	if send != nil {
		send(one.kind, one.reason, one.message)
	}
}

// by sets the way, and emits what was queued.
func (n *notices) by(send func(kind, reason, message string)) {
	n.mu.Lock()
	queued := n.queued
	n.send, n.queued = send, nil
	n.mu.Unlock()
	for _, one := range queued {
		send(one.kind, one.reason, one.message)
	}
}

// stateFiles are the durable files of the process. Safe for concurrent use.
type stateFiles struct {
	service house.Service
	notices *notices
	metrics stateMetrics

	mu     sync.Mutex
	states map[string]store.State // by path
}

func newStateFiles(s house.Service, n *notices, r prometheus.Registerer) *stateFiles {
	return &stateFiles{service: s, notices: n, metrics: newStateMetrics(r, s), states: map[string]store.State{}}
}

// changed takes in the state of a file.
func (f *stateFiles) changed(now store.State) {
	f.mu.Lock()
	before := f.states[now.Path]
	f.states[now.Path] = now
	f.mu.Unlock()
	if now.Damage != nil && now.Damage != before.Damage {
		f.metrics.damaged.Inc()
		f.notices.emit(notice{v1.EventTypeWarning, ReasonDamaged, fmt.Sprintf("%s: %s", f.service, now.Damage)})
	}
	switch {
	case now.Trouble != nil && before.Trouble == nil:
		f.metrics.unwritable.Set(1)
		f.notices.emit(notice{v1.EventTypeWarning, ReasonNotWritten, fmt.Sprintf("%s: state file %s cannot be written, going on in memory: %v", f.service, now.Path, now.Trouble)})
	case now.Trouble == nil && before.Trouble != nil:
		f.metrics.unwritable.Set(0)
		f.notices.emit(notice{v1.EventTypeNormal, ReasonWritten, fmt.Sprintf("%s: state file %s is written again", f.service, now.Path)})
	}
}

// list are the files as Hello shows them.
func (f *stateFiles) list() (files []*nodev1.StateFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.states {
		one := &nodev1.StateFile{Path: s.Path}
		if s.Damage != nil {
			one.Damage = s.Damage.String()
		}
		if s.Trouble != nil {
			one.Trouble, one.Since = s.Trouble.Error(), timestamppb.New(s.Since)
		}
		files = append(files, one)
	}
	return files
}

// stateMetrics are what every process counts of its durable file.
type stateMetrics struct {
	damaged    prometheus.Counter
	unwritable prometheus.Gauge
}

func newStateMetrics(r prometheus.Registerer, s house.Service) stateMetrics {
	label := prometheus.Labels{"service": string(s)} // every service has them
	m := stateMetrics{
		prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sextant_state_file_damaged_total",
			Help: "Durable files that were found damaged and set aside.", ConstLabels: label,
		}),
		prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sextant_state_file_unwritable",
			Help: "1 while the disk takes no writes, so that what is new is in memory only.", ConstLabels: label,
		}),
	}
	r.MustRegister(m.damaged, m.unwritable)
	return m
}
