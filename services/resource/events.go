// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

// events emits events. One that cannot be emitted is logged.
type events struct {
	feed *feed.Events
	now  func() time.Time
	log  *slog.Logger
}

// pod emits an event about a pod.
func (e *events) pod(ctx context.Context, p *v1.Pod, kind, reason, message string) {
	e.emit(ctx, &eventv1.Event{Object: reference(p), Type: kind, Reason: reason, Message: message, Time: timestamppb.New(e.now())})
}

// node emits an event about the node as a whole.
func (e *events) node(ctx context.Context, now *settings, kind, reason, message string) {
	e.emit(ctx, &eventv1.Event{
		Object: &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Node", Name: now.conf.Node.Name, Uid: now.conf.Node.Name},
		Type:   kind, Reason: reason, Message: message, Time: timestamppb.New(e.now()),
	})
}

func (e *events) emit(ctx context.Context, event *eventv1.Event) {
	if err := e.feed.Emit(ctx, event); err != nil {
		e.log.Error("event", "reason", event.GetReason(), "error", err.Error())
	}
}

func reference(p *v1.Pod) *eventv1.ObjectReference {
	return &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)}
}
