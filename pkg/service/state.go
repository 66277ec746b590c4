package service

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/store"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
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

// notice is an event about the node that nobody has heard yet.
type notice struct{ kind, reason, message string }

// StateDir is the folder of the process's durable state.
func (k *Kit) StateDir() string { return k.Paths.StateOf(k.Service) }

// StoreConfig is how the process opens a durable file below its state folder. What
// is wrong with the file, then and later, is told by an event about the Node, in
// the metrics and in Hello; the caller adds the schema.
func (k *Kit) StoreConfig(name string) store.Config {
	return store.Config{Path: filepath.Join(k.StateDir(), name), Log: k.Log, Changed: k.stateChanged}
}

// stateChanged takes in how a durable file fares.
func (k *Kit) stateChanged(now store.State) {
	k.mu.Lock()
	before := k.states[now.Path]
	k.states[now.Path] = now
	k.mu.Unlock()
	if now.Damage != nil && now.Damage != before.Damage {
		k.stateMetrics.damaged.Inc()
		k.Tell(v1.EventTypeWarning, ReasonDamaged, fmt.Sprintf("%s: %s", k.Service, now.Damage))
	}
	switch {
	case now.Trouble != nil && before.Trouble == nil:
		k.stateMetrics.unwritable.Set(1)
		k.Tell(v1.EventTypeWarning, ReasonNotWritten, fmt.Sprintf("%s: state file %s cannot be written, going on in memory: %v", k.Service, now.Path, now.Trouble))
	case now.Trouble == nil && before.Trouble != nil:
		k.stateMetrics.unwritable.Set(0)
		k.Tell(v1.EventTypeNormal, ReasonWritten, fmt.Sprintf("%s: state file %s is written again", k.Service, now.Path))
	}
}

// Tell emits an event about the Node, whose name status fills in. Before Events or
// TellBy was called it is put by.
func (k *Kit) Tell(kind, reason, message string) {
	k.mu.Lock()
	tell := k.tell
	if tell == nil {
		k.untold = append(k.untold, notice{kind, reason, message})
	}
	k.mu.Unlock()
	if tell != nil {
		tell(kind, reason, message)
	}
}

// TellBy is for the service that writes events itself.
func (k *Kit) TellBy(tell func(kind, reason, message string)) {
	k.mu.Lock()
	k.tell = tell
	untold := k.untold
	k.untold = nil
	k.mu.Unlock()
	for _, n := range untold {
		tell(n.kind, n.reason, n.message)
	}
}

// tellByFeed emits events about the Node on the process's own feed.
func (k *Kit) tellByFeed(kind, reason, message string) {
	err := k.events.Emit(context.Background(), &eventv1.Event{
		Object: &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Node"},
		Type:   kind, Reason: reason, Message: message, Time: timestamppb.Now(),
	})
	if err != nil {
		k.Log.Warn("event lost", "reason", reason, KeyError, err.Error())
	}
}

// stateFiles are the files with which something is or was wrong; callers hold
// Kit.mu.
func (k *Kit) stateFiles() []*nodev1.StateFile {
	var files []*nodev1.StateFile
	for _, s := range k.states {
		f := &nodev1.StateFile{Path: s.Path}
		if s.Damage != nil {
			f.Damage = s.Damage.String()
		}
		if s.Trouble != nil {
			f.Trouble, f.Since = s.Trouble.Error(), timestamppb.New(s.Since)
		}
		files = append(files, f)
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
