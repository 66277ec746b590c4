// SPDX-License-Identifier: Apache-2.0

// Package apitest is a small API server for tests: list, watch (with bookmarks
// and streamed lists), get, tokens and reviews, in this process over real HTTP.
//
// It is as strict as the node authorizer where that matters here: pods only by
// node, ConfigMaps and Secrets only one by one, claims and volumes only by get.
// It can be told to be away, and to refuse. It is a fake for quick tests; the
// end-to-end suite runs against the real one.
package apitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sextant-node/sextant/test/ports"
)

// Server is the fake. Make it with New.
type Server struct {
	address string

	mu       sync.Mutex
	version  int
	objects  map[string]stored // by resource/namespace/name
	events   []event
	changed  chan struct{}            // closed and replaced at each change
	http     *http.Server             // nil while away
	refused  map[string]bool          // resource/namespace/name
	requests map[string]int           // by verb and resource
	stalled  map[string]chan struct{} // by verb and resource, until it is closed
	tokens   int
}

type stored struct {
	resource string
	object   runtime.Object
	meta     metav1.Object
}

type event struct {
	version int
	kind    string
	stored
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{
		objects: map[string]stored{}, changed: make(chan struct{}), address: fmt.Sprintf("127.0.0.1:%d", ports.Loopback(t)),
		refused: map[string]bool{}, requests: map[string]int{}, stalled: map[string]chan struct{}{}, version: 1,
	}
	s.Away(false)
	t.Cleanup(func() { s.Away(true) })
	return s
}

// Away makes every connection break, and refuses new ones, until it is back at
// the same address.
func (s *Server) Away(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case away && s.http != nil:
		if err := s.http.Close(); err != nil {
			panic(err) // only the listener can fail to close
		}
		s.http = nil
	case !away && s.http == nil:
		listener, err := net.Listen("tcp", s.address)
		if err != nil {
			panic(err) // the port is reserved
		}
		s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
		go func(server *http.Server) {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				panic(err)
			}
		}(s.http)
	}
	s.wake()
}

// Kubeconfig writes credentials for the server into a folder.
func (s *Server) Kubeconfig(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: t}}],
contexts: [{name: c, context: {cluster: c, user: u}}]}
`, "http://"+s.address)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func key(resource, namespace, name string) string { return resource + "/" + namespace + "/" + name }

// Put adds or replaces an object of a resource such as "pods" and returns its new
// resource version.
func (s *Server) Put(resource string, object runtime.Object) (version string) {
	object = object.DeepCopyObject()
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		panic(err) // a mistake in the test
	}
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	meta := object.(metav1.Object)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	meta.SetResourceVersion(strconv.Itoa(s.version))
	meta.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "test"}})
	k := key(resource, meta.GetNamespace(), meta.GetName())
	kind := "ADDED"
	if _, ok := s.objects[k]; ok {
		kind = "MODIFIED"
	}
	st := stored{resource, object, meta}
	s.objects[k] = st
	s.tell(kind, st)
	return meta.GetResourceVersion()
}

// Delete removes an object.
func (s *Server) Delete(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key(resource, namespace, name)
	if st, ok := s.objects[k]; ok {
		delete(s.objects, k)
		s.version++
		s.tell("DELETED", st)
	}
}

func (s *Server) tell(kind string, st stored) {
	s.events = append(s.events, event{s.version, kind, st})
	s.wake()
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Refuse answers 403 for one object.
func (s *Server) Refuse(resource, namespace, name string, refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[key(resource, namespace, name)] = refuse
}

// Stall keeps a verb and resource, such as "create tokenreviews", from being answered
// until release is called.
func (s *Server) Stall(what string) (release func()) {
	gate := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled[what] = gate
	return sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.stalled, what)
		s.mu.Unlock()
		close(gate)
	})
}

// Requests says how often a verb and resource, such as "watch pods", came.
func (s *Server) Requests(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[what]
}

// ServeHTTP implements http.Handler, for a server that adds to this one.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, ok := parse(r)
	if !ok {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path)
		return
	}
	s.mu.Lock()
	s.requests[req.verb+" "+req.resource]++
	refused := s.refused[key(req.resource, req.namespace, req.name)]
	gate := s.stalled[req.verb+" "+req.resource]
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
			return
		}
	}
	if text := req.forbidden(); refused || text != "" {
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, "forbidden: "+text)
		return
	}
	switch req.verb {
	case "get":
		s.get(w, req)
	case "list":
		s.list(w, req)
	case "watch":
		s.watch(w, r, req)
	case "create":
		s.create(w, r, req)
	}
}

// request is what a path and query ask for.
type request struct {
	verb, resource, subresource, namespace, name string
	node, signer                                 string // of spec.nodeName= and spec.signerName=
	since                                        int
	initial                                      bool
}

func parse(r *http.Request) (request, bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return request{}, false
	}
	req := request{verb: "list"}
	if len(parts) > 2 && parts[0] == "namespaces" {
		req.namespace, parts = parts[1], parts[2:]
	}
	req.resource = parts[0]
	if len(parts) > 1 {
		req.verb, req.name = "get", parts[1]
	}
	if len(parts) > 2 {
		req.subresource = parts[2]
	}
	q := r.URL.Query()
	if r.Method == http.MethodPost {
		req.verb = "create"
	} else if q.Get("watch") == "true" || q.Get("watch") == "1" {
		req.verb = "watch"
	}
	for selector := range strings.SplitSeq(q.Get("fieldSelector"), ",") {
		field, value, _ := strings.Cut(selector, "=")
		switch field {
		case "metadata.name":
			req.name = value
		case "spec.nodeName":
			req.node = value
		case "spec.signerName":
			req.signer = value
		}
	}
	req.since, _ = strconv.Atoi(q.Get("resourceVersion")) // 0: from now on
	req.initial = q.Get("sendInitialEvents") == "true"
	return req, true
}

// forbidden says what the node authorizer would not allow.
func (r request) forbidden() string {
	switch r.resource {
	case "pods":
		if r.verb != "create" && r.node == "" {
			return "pods without spec.nodeName"
		}
	case "configmaps", "secrets":
		if r.name == "" || r.namespace == "" {
			return r.resource + " without a name"
		}
	case "persistentvolumeclaims", "persistentvolumes", "resourceclaims":
		if r.verb != "get" {
			return r.verb + " of " + r.resource
		}
	}
	return ""
}

func (r request) matches(st stored) bool {
	if st.resource != r.resource || (r.namespace != "" && st.meta.GetNamespace() != r.namespace) {
		return false
	}
	if r.name != "" && st.meta.GetName() != r.name {
		return false
	}
	return (r.node == "" || nodeOf(st.object) == r.node) && (r.signer == "" || signerOf(st.object) == r.signer)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(http.ErrAbortHandler)
	}
}
