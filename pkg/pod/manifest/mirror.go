package manifest

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Mirror is the pod to create at the API server for a static pod. The API server gives
// it a UID of its own. It is controlled by the Node object, so it goes when the node
// does.
func Mirror(p *v1.Pod, nodeName string, nodeUID types.UID) *v1.Pod {
	m := p.DeepCopy()
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[pod.ConfigMirrorAnnotation] = m.Annotations[pod.ConfigHashAnnotation]
	controller := true
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1.SchemeGroupVersion.String(),
		Kind:       "Node",
		Name:       nodeName,
		UID:        nodeUID,
		Controller: &controller,
	}}
	return m
}

// IsMirrorOf reports whether the mirror pod shows this version of the static pod, and is
// not on its way out. Otherwise it is to be deleted and made anew.
func IsMirrorOf(mirror, static *v1.Pod) bool {
	return pod.IsMirror(mirror) && mirror.DeletionTimestamp == nil &&
		pod.FullName(mirror) == pod.FullName(static) &&
		mirror.Annotations[pod.ConfigMirrorAnnotation] == static.Annotations[pod.ConfigHashAnnotation]
}

// Translation finds mirror pods and static pods by each other's UID. It is a snapshot:
// make one for each pair of lists.
type Translation struct {
	static map[types.UID]types.UID // mirror → static
	mirror map[types.UID]types.UID // static → mirror
}

// Translate pairs static pods with mirror pods of the same full name, whatever their
// versions.
func Translate(static, mirrors []*v1.Pod) Translation {
	t := Translation{static: map[types.UID]types.UID{}, mirror: map[types.UID]types.UID{}}
	byName := make(map[string]types.UID, len(static))
	for _, p := range static {
		byName[pod.FullName(p)] = p.UID
	}
	for _, m := range mirrors {
		if uid, ok := byName[pod.FullName(m)]; ok && pod.IsMirror(m) {
			t.static[m.UID] = uid
			t.mirror[uid] = m.UID
		}
	}
	return t
}

// Static is the UID under which a pod runs: that of the static pod for a mirror pod's,
// and any other as it is.
func (t Translation) Static(uid types.UID) types.UID {
	if s, ok := t.static[uid]; ok {
		return s
	}
	return uid
}

// Mirror is the UID of the mirror pod of a static pod.
func (t Translation) Mirror(static types.UID) (types.UID, bool) {
	m, ok := t.mirror[static]
	return m, ok
}
