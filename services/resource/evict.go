// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/signal"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/resource/internal/eviction"
	"github.com/sextant-node/sextant/services/resource/internal/gauge"
)

// reclaimTime is how long one waits for podworker to have freed what it can.
const reclaimTime = 2 * time.Minute

// evictor decides about evictions; the loop's alone.
type evictor struct {
	history   eviction.History
	shortages *shortages
	// layout is empty until the runtime has said where it keeps images.
	layout eviction.Layout
	// next is when a pass is due.
	next time.Time
	// hurried: one is due whatever the time.
	hurried *atomic.Bool
	reader  *gauge.Reader
	alarm   *alarm

	ledger   *ledger
	node     *node
	readings *readings
	events   *events
	metrics  *metrics
	log      *slog.Logger
	now      func() time.Time
	wake     signal.Signal
	reclaims *feed.Replica[*podworkerv1.NodeState]
	layers   *layers
	volumes  volumev1.VolumeServiceClient
}

// hurry has the next round of the loop decide about evictions, whatever the time.
func (e *evictor) hurry() {
	e.hurried.Store(true)
	e.wake.Send()
}

// reclaimed reports whether podworker has freed what it was asked for, or takes too long.
func (e *evictor) reclaimed(now time.Time) bool {
	r := e.history.Reclaim
	if r == nil {
		return false
	}
	state, _ := e.reclaims.Get("node")
	return state.GetReclaimed() != nil && state.GetReclaimed().AsTime().Equal(r.Asked) || now.Sub(r.Asked) >= reclaimTime
}

// wire is the request to podworker; nil for none.
func (e *evictor) wire() *resourcev1.Reclaim {
	r := e.history.Reclaim
	if r == nil {
		return nil
	}
	return &resourcev1.Reclaim{Time: timestamppb.New(r.Asked), Containers: r.Containers, Images: r.Images}
}

// leaving reports whether a pod that was evicted is on its way still.
func (e *evictor) leaving(now time.Time) bool {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	for _, h := range e.ledger.held {
		if v := h.Evicting; v != nil && v.Reason == "" && now.Sub(v.At) < pod.Departure(pod.Seconds(v.Grace)) {
			return true
		}
	}
	return false
}

// evict carries out what a pass has decided.
func (e *evictor) evict(ctx context.Context, v eviction.Verdict) {
	if e.sentence(ctx, v.Pod, evicting{Message: v.Message, Signal: v.Signal, Annotations: v.Annotations, Grace: v.Grace}) {
		e.metrics.evictions.WithLabelValues(v.Signal).Inc()
	}
}

// sentence puts a verdict on the disk before podworker sees it: whichever process is
// killed, the pod goes, and none in its place. It reports false for a pod that is on its
// way already, and where the verdict could not be written.
func (e *evictor) sentence(ctx context.Context, p *v1.Pod, v evicting) bool {
	uid := string(p.UID)
	defer e.ledger.turn(uid)()
	h := e.ledger.get(uid)
	if h == nil || h.Releasing || h.Evicting != nil {
		return false
	}
	v.At = e.now()
	next := h.allocation
	next.Evicting = &v
	err := fault.Hit(ctx, "resource.evict")
	if err == nil {
		err = e.ledger.put(h, next)
	}
	if err != nil {
		e.log.Error("pod not evicted", "uid", uid, "error", err.Error())
		return false
	}
	e.log.Warn("evicting pod", "uid", uid, "namespace", p.Namespace, "pod", p.Name, "reason", cmp.Or(v.Reason, evicted), "signal", v.Signal, "message", v.Message)
	e.report(ctx, h)
	e.ledger.show(ctx, h)
	return true
}

// report emits the event of an eviction, if there is one; that of a preemption is
// podworker's. It has a key and is emitted again at each start until the pod is released:
// a kill before the recorder has read it costs nothing.
func (e *evictor) report(ctx context.Context, h *held) {
	if v := h.Evicting; v != nil && v.Reason == "" {
		e.events.emit(ctx, &eventv1.Event{
			Object: reference(h.pod), Type: v1.EventTypeWarning, Reason: evicted, Message: v.Message,
			Annotations: v.Annotations, Time: timestamppb.New(v.At), Key: evicted,
		})
	}
}
