// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sextant-node/sextant/pkg/pod"
)

func nodeOf(object runtime.Object) string {
	if p, ok := object.(*v1.Pod); ok {
		return p.Spec.NodeName
	}
	return ""
}

func signerOf(object runtime.Object) string {
	if b, ok := object.(*certificatesv1beta1.ClusterTrustBundle); ok {
		return b.Spec.SignerName
	}
	return ""
}

func (s *Server) get(w http.ResponseWriter, req request) {
	s.mu.Lock()
	st, ok := s.objects[key(req.resource, req.namespace, req.name)]
	s.mu.Unlock()
	if !ok {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, req.resource+" "+req.name+" not found")
		return
	}
	answer(w, http.StatusOK, st.object)
}

// matching lists what is there now; the caller holds the lock.
func (s *Server) matching(req request) []stored {
	var all []stored
	for _, st := range s.objects {
		if req.matches(st) {
			all = append(all, st)
		}
	}
	slices.SortFunc(all, func(a, b stored) int { return strings.Compare(a.meta.GetName(), b.meta.GetName()) })
	return all
}

func (s *Server) list(w http.ResponseWriter, req request) {
	s.mu.Lock()
	all, version := s.matching(req), s.version
	s.mu.Unlock()
	items := make([]any, 0, len(all))
	kind, group := "", "v1"
	for _, st := range all {
		items = append(items, st.object)
		gvk := st.object.GetObjectKind().GroupVersionKind()
		kind, group = gvk.Kind, gvk.GroupVersion().String()
	}
	if kind == "" {
		kind = map[string]string{"pods": "Pod", "services": "Service", "secrets": "Secret", "configmaps": "ConfigMap", "nodes": "Node"}[req.resource]
	}
	answer(w, http.StatusOK, map[string]any{
		"kind": kind + "List", "apiVersion": group,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(version)}, "items": items,
	})
}

// watch streams events after a version; with initial events, first what is
// there and the bookmark that ends it.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, req request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	send := func(kind string, object any) {
		if err := out.Encode(map[string]any{"type": kind, "object": object}); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	s.mu.Lock()
	since := req.since
	var initial []stored
	if req.initial {
		initial, since = s.matching(req), s.version
	} else if since == 0 {
		since = s.version
	}
	s.mu.Unlock()
	for _, st := range initial {
		send("ADDED", st.object)
	}
	if req.initial {
		send("BOOKMARK", map[string]any{
			"kind": kindOf(req.resource), "apiVersion": groupOf(req.resource),
			"metadata": map[string]any{
				"resourceVersion": strconv.Itoa(since),
				"annotations":     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			},
		})
	}
	for {
		w.(http.Flusher).Flush()
		s.mu.Lock()
		var news []event
		for _, e := range s.events {
			if e.version > since && req.matches(e.stored) {
				news = append(news, e)
			}
		}
		since = s.version
		changed := s.changed
		s.mu.Unlock()
		for _, e := range news {
			send(e.kind, e.object)
		}
		if len(news) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func kindOf(resource string) string {
	return map[string]string{
		"pods": "Pod", "configmaps": "ConfigMap", "secrets": "Secret", "services": "Service", "nodes": "Node",
		"serviceaccounts": "ServiceAccount", "runtimeclasses": "RuntimeClass", "csidrivers": "CSIDriver",
		"clustertrustbundles": "ClusterTrustBundle",
	}[resource]
}

func groupOf(resource string) string {
	if g := map[string]string{"runtimeclasses": "node.k8s.io/v1", "csidrivers": "storage.k8s.io/v1", "clustertrustbundles": "certificates.k8s.io/v1beta1"}[resource]; g != "" {
		return g
	}
	return "v1"
}

// create answers tokens and reviews.
func (s *Server) create(w http.ResponseWriter, r *http.Request, req request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	switch o := object.(type) {
	case *authenticationv1.TokenRequest:
		s.mu.Lock()
		account, known := s.objects[key("serviceaccounts", req.namespace, req.name)]
		s.tokens++
		n := s.tokens
		s.mu.Unlock()
		if !known {
			fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "serviceaccount not found")
			return
		}
		if o.UID != "" && o.UID != account.meta.GetUID() {
			fail(w, http.StatusConflict, metav1.StatusReasonConflict, "the serviceaccount has another UID")
			return
		}
		life := pod.Seconds(*o.Spec.ExpirationSeconds)
		o.Status = authenticationv1.TokenRequestStatus{
			Token:               fmt.Sprintf("token-%d-%s-%s", n, o.Spec.BoundObjectRef.UID, strings.Join(o.Spec.Audiences, "+")),
			ExpirationTimestamp: metav1.NewTime(time.Now().Add(life)),
		}
	case *authenticationv1.TokenReview:
		o.Status = authenticationv1.TokenReviewStatus{Authenticated: o.Spec.Token == "good", User: authenticationv1.UserInfo{Username: "jane"}}
	case *authorizationv1.SubjectAccessReview:
		o.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: o.Spec.User == "jane"}
	default:
		fail(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "create "+req.resource)
		return
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	answer(w, http.StatusCreated, object)
}
