// SPDX-License-Identifier: Apache-2.0

// Package plan decides what to write to the API server about one pod: the next
// write, or none. Values in, values out; the caller writes, learns the answer and
// asks again.
//
// What it promises: a status is written only when it says something else than the
// one the API server is known to have; a terminal phase there is never taken back;
// the final delete comes only after the terminal status is there, as far as the API
// server takes it, and podworker has released everything; whatever is deleted or patched is named by UID.
package plan

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/services/status/internal/gather"
)

// Object is a pod as the API server is known to have it.
type Object struct {
	Namespace, Name string
	UID             types.UID
	// Version is the resourceVersion; they grow with each write of the object.
	Version uint64
	Status  *v1.PodStatus
	// Deleting: the deletion timestamp is set.
	Deleting bool
	// Mirror is the config hash of the static pod it mirrors, empty for others.
	Mirror string
	// Gone: the API server said that there is no such object any more.
	Gone bool
}

// Kind of a write.
type Kind string

// The writes.
const (
	None         Kind = ""
	Patch        Kind = "patch"
	Delete       Kind = "delete"
	CreateMirror Kind = "create mirror"
	DeleteMirror Kind = "delete mirror"
)

// Class is how urgent a write is; smaller goes first.
type Class int

// The classes, the most urgent first.
const (
	// Urgent: deletions, and statuses with a terminal phase or another Ready.
	Urgent Class = iota
	// Soon: mirror pods come and go.
	Soon
	// Settling: what is likely to change again in a moment.
	Settling
	// Starting: the API server has a startTime for the pod, and the status adds only that the
	// sandbox is ready or that some containers run, while others are still ContainerCreating. (A
	// kubelet reports the containers of a pod after it has started all of them.)
	Starting
	// Ending: the pod is being deleted, and the status does not have its final phase yet. A
	// change of Ready is Urgent all the same if it comes from a probe. (A kubelet reports no
	// container as terminated before all of them are.)
	Ending
)

// Action is one write. The zero value is none.
type Action struct {
	Kind            Kind
	Class           Class
	Namespace, Name string
	UID             types.UID
	// Was and Status are what a patch turns into what.
	Was, Status *v1.PodStatus
	// Pod to create.
	Pod *v1.Pod
}

// Pod is what is known of a pod of the API server.
type Pod struct {
	// Object is nil when the API server has none.
	Object *Object
	// Status as rendered; nil while it is held.
	Status *v1.PodStatus
	// Ignored is a status that the API server accepted and does not show whole: it knows no
	// such field, or a webhook changes it. Nil for none.
	Ignored *v1.PodStatus
	// Released: nothing of the pod is left on the node (podworker).
	Released bool
}

// Next is the next write about a pod of the API server.
func (p Pod) Next() Action {
	o := p.Object
	if o == nil || o.Gone {
		return Action{}
	}
	last := p.Released && o.Deleting && o.Status != nil && pod.IsTerminalPhase(o.Status.Phase)
	if action := status(o, p.Status); action.Kind != None && !(last && p.Ignored != nil && podstatus.Equal(p.Ignored, action.Status)) {
		return action
	}
	if last {
		return Action{Kind: Delete, Class: Urgent, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	}
	return Action{}
}

// status writes a rendered status to an object, if that says anything new.
func status(o *Object, rendered *v1.PodStatus) Action {
	if rendered == nil {
		return Action{}
	}
	was := o.Status
	if was == nil {
		was = &v1.PodStatus{}
	}
	if pod.IsTerminalPhase(was.Phase) && !pod.IsTerminalPhase(rendered.Phase) {
		return Action{}
	}
	want := gather.Merge(rendered, was)
	if podstatus.Equal(was, want) {
		return Action{}
	}
	return Action{
		Kind: Patch, Class: class(o, was, want), Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		Was: was, Status: want,
	}
}

func class(o *Object, was, want *v1.PodStatus) Class {
	switch other := ready(was) != ready(want); {
	case pod.IsTerminalPhase(want.Phase), other && !(o.Deleting && running(was) > running(want)):
		return Urgent
	case o.Deleting:
		return Ending
	case was.StartTime != nil && starting(want):
		return Starting
	}
	return Settling
}

// starting reports whether some containers are ContainerCreating and all others run, none of
// them restarted. In a pod with init containers the reason is PodInitializing.
func starting(s *v1.PodStatus) bool {
	made := 0
	for i := range s.ContainerStatuses {
		switch c := &s.ContainerStatuses[i]; {
		case c.State.Running != nil && c.RestartCount == 0:
			made++
		case c.State.Waiting == nil || c.State.Waiting.Reason != reason.ContainerCreating:
			return false
		}
	}
	return made < len(s.ContainerStatuses)
}

// running is how many containers run.
func running(s *v1.PodStatus) (n int) {
	for _, all := range [][]v1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range all {
			if all[i].State.Running != nil {
				n++
			}
		}
	}
	return n
}

func ready(s *v1.PodStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
