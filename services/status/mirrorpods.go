// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	"github.com/sextant-node/sextant/services/status/internal/gather"
	"github.com/sextant-node/sextant/services/status/internal/plan"
	"github.com/sextant-node/sextant/services/status/internal/report"
)

// mirror puts on the desk what is to become of a static pod's mirror. known reports whether
// want is what all sources of manifests say.
func (l *podLoop) mirror(ctx context.Context, name string, want *desired, known bool) {
	if l.node.Standalone() {
		return
	}
	m, _, mirrorKnown := l.in.mirrors.Lookup(name)
	last := l.last(name, want, report.ObjectOf(m))
	s := plan.Static{
		Known:       known,
		Mirror:      report.ObjectOf(m),
		MirrorKnown: mirrorKnown,
		Ending:      l.ending(name, want) || runs(last), // podworker may know of an end before pleg does
		Last:        last,
		Node:        l.node.Owner(),
	}
	if want == nil && m == nil && s.MirrorKnown && l.desk.Object(name) == nil {
		l.desk.Drop(name)
		return
	}
	if want == nil && m == nil && l.desk.Object(name) == nil {
		return // a UID, or a name that is not known yet
	}
	if want != nil {
		s.Pod = want.pod
		if e := l.pods[string(want.pod.UID)]; e != nil {
			if e.blind && s.Mirror != nil {
				l.look(ctx, string(want.pod.UID))
			}
			s.Status = e.status
		}
	}
	l.desk.SetStatic(name, s)
	if want != nil {
		l.started.reported(string(want.pod.UID), want, l.apiStatus(string(want.pod.UID), want, nil, false), l.now())
		if e := l.pods[string(want.pod.UID)]; e != nil {
			l.publish(ctx, string(want.pod.UID), want, e)
		}
	}
}

// ending reports whether a static pod of that name, other than the one wanted, may
// still run here.
func (l *podLoop) ending(name string, want *desired) bool {
	if !l.in.workers.Complete() && !l.takenUp(want) {
		return true
	}
	for uid, w := range l.in.workers.Items() {
		if staticName(w) != name || want != nil && uid == string(want.pod.UID) {
			continue
		}
		switch w.Facts.Lifecycle {
		case podstatus.Syncing, podstatus.Terminating:
			return true
		}
	}
	return false
}

// runs reports whether some container runs by a status; nil for none.
func runs(s *v1.PodStatus) bool {
	if s == nil {
		return false
	}
	return slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses), func(c v1.ContainerStatus) bool {
		return c.State.Running != nil
	})
}

// last is the status of the version that a mirror shows, if podworker has it still and it is
// not the one wanted.
func (l *podLoop) last(name string, want *desired, mirror *plan.Object) *v1.PodStatus {
	if mirror == nil {
		return nil
	}
	for uid, w := range l.in.workers.Items() {
		if staticName(w) != name || want != nil && uid == string(want.pod.UID) || w.Pod == nil || plan.Hash(w.Pod) != mirror.Mirror {
			continue
		}
		if e := l.pods[uid]; e != nil {
			return e.status
		}
	}
	return nil
}

// takenUp reports whether podworker has begun with a static pod, for which it waits until no
// other of the name runs. It may not know all pods for long: a URL of manifests is away.
func (l *podLoop) takenUp(want *desired) bool {
	if want == nil {
		return false
	}
	w, ok := l.in.workers.Get(string(want.pod.UID))
	return ok && w.Facts.Lifecycle == podstatus.Syncing
}

// staticName is namespace/name of a pod that may be static, and empty for another.
func staticName(w *gather.Worker) string {
	if w.Source == pod.SourceAPI {
		return ""
	}
	return w.Namespace + "/" + w.Name
}

// unmirrored reports whether the API server has no mirror of that name.
func (l *podLoop) unmirrored(name string) bool {
	_, ok, known := l.in.mirrors.Lookup(name)
	return !ok && known
}
