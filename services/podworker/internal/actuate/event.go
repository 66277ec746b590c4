// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/wire"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

func newEvent(p *v1.Pod, container, kind, reason, message string, now time.Time) *eventv1.Event {
	ref := &eventv1.ObjectReference{
		ApiVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID),
	}
	if container != "" {
		// An orphan's specification is not at hand; it was a container most likely.
		if ref.FieldPath = pod.ContainerFieldPath(p, container); ref.FieldPath == "" {
			ref.FieldPath = "spec.containers{" + container + "}"
		}
	}
	return &eventv1.Event{Object: ref, Type: kind, Reason: reason, Message: wire.Text(message), Time: timestamppb.New(now)}
}
