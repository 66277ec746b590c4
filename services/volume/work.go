// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/pkg/wire"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

const (
	mounted = volumev1.VolumeState_VOLUME_STATE_MOUNTED
	pending = volumev1.VolumeState_VOLUME_STATE_PENDING
)

// intent is what the journal keeps of a pod: it is written before anything is
// done.
type intent struct {
	// Pod as Kubernetes protobuf; empty for one that was found on disk.
	Pod         []byte `json:"pod,omitempty"`
	Withdrawing bool   `json:"withdrawing,omitempty"`
}

// volumeWork is one volume's state. It is replaced, never changed.
type volumeWork struct {
	state  volumev1.VolumeState
	made   plugin.Made
	step   string
	err    error
	said   string // the error of the last event, and when
	saidAt time.Time
	since  time.Time
	retry  time.Time
	failed int
	// full is why the node has no room for it, once its pod has waited long enough.
	full string
}

// reports reports whether an event is due about an error: a new one, or one that lasts.
func (w *volumeWork) reports(text string, now time.Time) bool {
	if text == w.said && now.Sub(w.saidAt) < pod.EventReminder {
		return false
	}
	w.said, w.saidAt = text, now
	return true
}

// podWork is one pod's volumes. Its fields are guarded by pods.mu, but for failed, which
// belongs to the removal: one goroutine per pod at a time.
type podWork struct {
	uid         types.UID
	pod         *v1.Pod // nil: found on disk
	found       []string
	withdrawing bool
	leaving     context.Context // ends when it is withdrawn
	leave       context.CancelFunc
	asked       time.Time // when pod was declared as it is
	// binding is taken to bind parts of its volumes, or to remove them. Capacity 1.
	binding chan struct{}

	lanes   []*lane // of its volumes
	removal lane

	volumes map[string]*volumeWork // by name
	// needs are the objects each volume was last made of, by config's keys.
	needs map[string]map[string]bool
	// attach are the attach controller's names of the volumes that must be attached.
	attach map[string]string
	// expansions are what claims are to say of the volumes' sizes, and do not say yet.
	expansions map[string]*volumev1.ClaimExpansion
	stuck      *volumeWork // a removal that failed
	failed     int         // removals that failed in a row
}

func newWork(uid types.UID) *podWork {
	w := &podWork{
		uid: uid, binding: make(chan struct{}, 1), volumes: map[string]*volumeWork{}, needs: map[string]map[string]bool{},
		attach: map[string]string{}, expansions: map[string]*volumev1.ClaimExpansion{},
	}
	w.leaving, w.leave = context.WithCancel(context.Background())
	return w
}

// need notes that a volume is made of an object.
func (w *podWork) need(volume, key string) {
	if w.needs[volume] == nil {
		w.needs[volume] = map[string]bool{}
	}
	w.needs[volume][key] = true
}

// mountedAt is where a volume of a pod is mounted; empty if it is not, or is to go.
func (w *podWork) mountedAt(volume string) string {
	if v := w.volumes[volume]; !w.withdrawing && v != nil && v.state == mounted {
		return v.made.Path
	}
	return ""
}

// attaches reports whether a pod may begin to use what is attached for it. One that is
// withdrawn may while a pass goes on that began before; its removal waits for that.
func (w *podWork) attaches() bool {
	return !w.withdrawing || w.busy()
}

func (w *podWork) item() *volumev1.PodVolumes {
	item := &volumev1.PodVolumes{Uid: string(w.uid), Withdrawing: w.withdrawing, Ready: w.pod != nil && !w.withdrawing}
	for _, name := range w.found {
		item.Volumes = append(item.Volumes, &volumev1.Volume{Name: name, State: mounted, Step: "found on disk"})
	}
	if w.withdrawing {
		if w.stuck != nil {
			item.Volumes = append(item.Volumes, w.stuck.wire("", ""))
		}
		return item
	}
	if w.pod == nil {
		return item
	}
	for i := range w.pod.Spec.Volumes {
		v := &w.pod.Spec.Volumes[i]
		state := w.volumes[v.Name]
		if state == nil {
			state = &volumeWork{state: pending, step: "not begun"}
		}
		item.Ready = item.Ready && state.state == volumev1.VolumeState_VOLUME_STATE_MOUNTED
		if state.full != "" {
			item.LimitExceeded = state.full
		}
		item.Volumes = append(item.Volumes, state.wire(v.Name, volumetype.Of(v).Plugin))
	}
	return item
}

func (w *volumeWork) wire(name, plugin string) *volumev1.Volume {
	v := &volumev1.Volume{
		Name: name, Plugin: plugin, State: w.state, HostPath: w.made.Path, Step: w.step, Relabel: w.made.Relabel,
		Since: wire.Time(w.since), RetryAt: wire.Time(w.retry),
	}
	if w.err != nil {
		v.Error = w.err.Error()
	}
	return v
}
