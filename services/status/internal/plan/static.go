// SPDX-License-Identifier: Apache-2.0

package plan

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
)

// Node is the Node object that owns mirror pods.
type Node struct {
	Name string
	// UID is empty while the Node object does not exist or is being deleted: no
	// mirror pod is made then.
	UID types.UID
}

// Static is what is known of one static pod's name: the pod and its mirror.
type Static struct {
	// Pod is the static pod that is wanted; nil for none.
	Pod *v1.Pod
	// Known: "no Pod" means that no manifest asks for one. It is false while a
	// source of manifests was not read whole.
	Known bool
	// Status of Pod as rendered; nil while it is held.
	Status *v1.PodStatus
	// Mirror is the pod of that name at the API server.
	Mirror *Object
	// Last is the status of the version that Mirror shows, as rendered, while podworker ends a
	// pod that is not Pod; nil for none. Ignored is as with Pod.
	Last, Ignored *v1.PodStatus
	// MirrorKnown: "no Mirror" means that the API server has none.
	MirrorKnown bool
	// Ending: another version of the pod, or the pod that is not wanted any more,
	// is still being ended here.
	Ending bool
	Node   Node
}

// Next is the next write about a static pod.
//
// A mirror that is deleted at the API server is let go at once, and made again, which does not
// touch the pod that runs. A mirror of another version, or of a pod that is not
// wanted any more, stays until that has ended, and says how. A mirror that shows an end is
// replaced when its pod has started over: the API server lets no container leave an end
// that its restart policy makes final, and those that wait for an end have seen it.
func (s Static) Next() Action {
	m := s.Mirror
	if m != nil && m.Gone {
		m = nil
	}
	if m == nil {
		if s.Pod == nil || !s.MirrorKnown || s.Node.UID == "" {
			return Action{}
		}
		return Action{Kind: CreateMirror, Class: Soon, Namespace: s.Pod.Namespace, Name: s.Pod.Name, Pod: Mirror(s.Pod, s.Node)}
	}
	last := status(m, s.Last)
	switch ends := s.Ends(); {
	case m.Deleting && s.Pod != nil:
		return Action{Kind: DeleteMirror, Class: Soon, Namespace: m.Namespace, Name: m.Name, UID: m.UID}
	case ends && last.Kind != None && !(s.Ignored != nil && podstatus.Equal(s.Ignored, last.Status)):
		return last
	case ends && !s.Ending:
		return Action{Kind: DeleteMirror, Class: Soon, Namespace: m.Namespace, Name: m.Name, UID: m.UID}
	case s.Pod == nil || ends:
		return Action{}
	}
	if m.Status != nil && s.Status != nil && pod.IsTerminalPhase(m.Status.Phase) && !pod.IsTerminalPhase(s.Status.Phase) {
		return Action{Kind: DeleteMirror, Class: Soon, Namespace: m.Namespace, Name: m.Name, UID: m.UID}
	}
	return status(m, s.Status)
}

// Ends reports whether there is a mirror, of another version than the pod that is wanted or of
// one that is not wanted any more.
func (s Static) Ends() bool {
	switch {
	case s.Mirror == nil || s.Mirror.Gone:
		return false
	case s.Pod == nil:
		return s.Known
	}
	return s.Mirror.Mirror != Hash(s.Pod)
}

// Hash is the identity of a static pod's version, as its mirror carries it.
func Hash(p *v1.Pod) string {
	if h := p.Annotations[pod.ConfigHashAnnotation]; h != "" {
		return h
	}
	return string(p.UID)
}

// Mirror is the API server's copy of a static pod: the same, marked with its
// version and owned by the Node.
func Mirror(p *v1.Pod, node Node) *v1.Pod {
	m := p.DeepCopy()
	m.Status = v1.PodStatus{}
	m.ResourceVersion, m.UID = "", ""
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[pod.ConfigMirrorAnnotation] = Hash(p)
	controller := true
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller,
	}}
	return m
}
