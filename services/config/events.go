// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/service"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

// reporter emits Kubernetes Events.
type reporter struct {
	events  *feed.Events
	inForce *configuration
	now     func() time.Time
	log     *slog.Logger
}

// tell emits a Normal event about the node.
func (r reporter) tell(ctx context.Context, reason, message string) {
	r.emit(ctx, r.nodeReference(), v1.EventTypeNormal, reason, message)
}

// warn emits a Warning event about a pod, or the node when there is none.
func (r reporter) warn(ctx context.Context, p *v1.Pod, reason, message string) {
	about := r.nodeReference()
	if p != nil {
		about = &eventv1.ObjectReference{
			ApiVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID),
		}
	}
	r.emit(ctx, about, v1.EventTypeWarning, reason, message)
}

// nodeReference names the node as the kubelet does: the name is the UID.
func (r reporter) nodeReference() *eventv1.ObjectReference {
	name := ""
	if current, _ := r.inForce.get(); current != nil {
		name = current.Node.Name
	}
	return &eventv1.ObjectReference{Kind: "Node", Name: name, Uid: name}
}

func (r reporter) emit(ctx context.Context, about *eventv1.ObjectReference, kind, reason, message string) {
	err := r.events.Emit(ctx, &eventv1.Event{
		Object: about, Type: kind, Reason: reason, Message: message, Time: timestamppb.New(r.now()),
	})
	if err != nil {
		r.log.Error("event not emitted", "reason", reason, service.KeyError, err.Error())
	}
}
