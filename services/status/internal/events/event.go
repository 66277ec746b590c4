// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

// component is the name events of a node agent are known by.
const component = "kubelet"

// maxName is the longest name of an object, less what is appended to it.
const maxName = 253 - 21

// ID names an item of a feed of events for ever. Without an epoch it is an event that is
// emitted in several, by its own key.
type ID struct{ Feed, Epoch, Key string }

// name is the API event's: derived, so that a repeat is no second event, and
// beginning with the time, as the kubelet's do, so that events of the same
// second are listed in their order.
func (id ID) name(object string, e *eventv1.Event) string {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s/%s/%s", id.Feed, id.Epoch, id.Key) // a hash does not fail
	if len(object) > maxName {
		object = object[:maxName]
	}
	var at int64
	if e.GetTime() != nil {
		at = e.GetTime().AsTime().UnixNano()
	}
	return fmt.Sprintf("%s.%016x%04x", object, at, h.Sum32()&0xffff)
}

// Convert makes the API event of an item.
func Convert(id ID, e *eventv1.Event, host string, now time.Time) *v1.Event {
	at := now
	if e.GetTime() != nil {
		at = e.GetTime().AsTime()
	}
	o := e.GetObject()
	if o.GetKind() == "Node" && o.GetName() == "" { // who emitted it does not know its name
		o = &eventv1.ObjectReference{ApiVersion: o.GetApiVersion(), Kind: "Node", Name: host, Uid: host}
	}
	namespace := cmp.Or(o.GetNamespace(), metav1.NamespaceDefault)
	return &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: id.name(o.GetName(), e), Namespace: namespace, Annotations: e.GetAnnotations()},
		InvolvedObject: v1.ObjectReference{
			APIVersion: o.GetApiVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(),
			UID: types.UID(o.GetUid()), FieldPath: o.GetFieldPath(),
		},
		Type: e.GetType(), Reason: e.GetReason(), Message: e.GetMessage(),
		FirstTimestamp: metav1.NewTime(at), LastTimestamp: metav1.NewTime(at), Count: 1,
		Source:              v1.EventSource{Component: component, Host: host},
		ReportingController: component, ReportingInstance: host,
	}
}
