// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	"github.com/sextant-node/sextant/pkg/service"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/status/internal/journal"
	"github.com/sextant-node/sextant/services/status/internal/plan"
	"github.com/sextant-node/sextant/services/status/internal/report"
)

// keep remembers a rendered status.
func (l *podLoop) keep(uid string, want *desired, e *podEntry, status *v1.PodStatus) {
	if e.status != nil && podstatus.Equal(e.status, status) && !e.restored {
		return
	}
	e.status, e.restored = status, false
	data, err := status.Marshal()
	if err != nil {
		l.log.Error("status not journaled", service.KeyUID, uid, service.KeyError, err.Error())
		return
	}
	namespace, name := l.names(uid, want)
	l.journal.PutPod(uid, journal.Pod{Namespace: namespace, Name: name, Status: data})
}

func (l *podLoop) names(uid string, want *desired) (namespace, name string) {
	if want != nil {
		return want.pod.Namespace, want.pod.Name
	}
	if w, ok := l.in.workers.Get(uid); ok {
		return w.Namespace, w.Name
	}
	return "", ""
}

func (l *podLoop) podPlan(uid string, want *desired, e *podEntry, listed *plan.Object, heard bool) plan.Pod {
	p := plan.Pod{Status: e.status}
	switch {
	case heard && want != nil:
		p.Object = listed
	case want != nil:
		// What config says is what an earlier life of it knew: of a patch made from that
		// the API server makes something else, such as a second address beside the old.
		p.Object = l.desk.Object(uid)
	}
	if w, ok := l.in.workers.Get(uid); ok {
		p.Released = w.Facts.Lifecycle == podstatus.Released || w.Facts.Lifecycle == podstatus.Rejected
	}
	return p
}

// listed is a pod as config has it of the API server, nil if it does not list the pod.
// heard reports whether the API server said so since config started; otherwise an earlier
// process of config did. A config without config.statuses has the status with the pod, and
// listing (apiHeard, from before the pod was looked up) holds for it.
func (l *podLoop) listed(uid string, want *desired, listing bool) (o *plan.Object, heard bool) {
	switch {
	case want == nil:
		return nil, false
	case !want.item.GetStatusApart():
		return report.ObjectOf(want.pod), listing
	}
	heard = l.in.statuses.Current(uid) // before the status is looked up
	if o, ok := l.in.statuses.Get(uid); ok {
		return o, heard
	}
	return report.ObjectOf(want.pod), false
}

// publish says in status.pods what is known.
func (l *podLoop) publish(ctx context.Context, uid string, want *desired, e *podEntry) {
	if e.status == nil {
		return
	}
	data, err := e.status.Marshal()
	if err != nil {
		l.log.Error("status not published", service.KeyUID, uid, service.KeyError, err.Error())
		return
	}
	r := &statusv1.PodReport{Uid: uid, Status: data}
	r.Namespace, r.Name = l.names(uid, want)
	if !l.node.Standalone() {
		key := uid
		if e.name != "" {
			key = e.name
		}
		r.Reported, r.Error = l.desk.State(key)
	}
	if _, err := l.reports.Set(ctx, uid, r); err != nil {
		l.log.Error("status not published", service.KeyUID, uid, service.KeyError, err.Error())
	}
}
