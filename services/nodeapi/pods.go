package nodeapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podList answers /pods: every desired pod; the status of static pods is ours,
// for nobody else writes it where no API server does.
func (s *Service) podList(w http.ResponseWriter, _ *http.Request) {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []v1.Pod{}}
	for uid, d := range s.pods.Items() {
		p := d.pod.DeepCopy()
		p.TypeMeta = metav1.TypeMeta{}
		if report, ok := s.statuses.Get(uid); ok && d.static() {
			st := v1.PodStatus{}
			if err := st.Unmarshal(report.GetStatus()); err == nil {
				p.Status = st
			}
		}
		list.Items = append(list.Items, *p)
	}
	slices.SortFunc(list.Items, func(a, b v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	writeJSON(w, list)
}

// configz answers the effective configuration, apiVersion and kind included.
func (s *Service) configz(w http.ResponseWriter, _ *http.Request) {
	conf := s.current()
	if conf == nil {
		http.Error(w, "configuration not known yet", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	writeJSON(w, map[string]any{"kubeletconfig": conf.Configz()})
}

func writeJSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // a caller that went away
}
