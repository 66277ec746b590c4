package nodeapi

import (
	"cmp"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// runningPods answers /runningpods/: what the runtime runs, whether or not it is
// desired.
func (s *Service) runningPods(w http.ResponseWriter, _ *http.Request) {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []v1.Pod{}}
	for _, o := range s.records.Items() {
		if !o.alive() {
			continue
		}
		p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.name, UID: types.UID(o.uid)}}
		for _, c := range o.containers {
			if c.running {
				p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c.name, Image: c.image})
			}
		}
		list.Items = append(list.Items, p)
	}
	slices.SortFunc(list.Items, func(a, b v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	writeJSON(w, list)
}
