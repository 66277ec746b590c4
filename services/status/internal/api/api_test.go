// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// server is an API server over HTTP/2 that remembers who asked what how.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	seen  []string // "<method> <path> <content type>"
	peers map[string]string
}

// newServer starts one; prepare changes it before.
func newServer(t *testing.T, prepare ...func(*http.Server)) *server {
	t.Helper()
	s := &server{peers: map[string]string{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
		parts := strings.Split(r.URL.Path, "/")
		s.peers[parts[len(parts)-1]] = r.RemoteAddr
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if parts[len(parts)-1] == "resourceslices" {
			s.mu.Lock()
			s.seen[len(s.seen)-1] = r.Method + " " + r.URL.Path + " " + r.URL.Query().Get("fieldSelector")
			s.mu.Unlock()
			_, _ = fmt.Fprint(w, `{"kind":"ResourceSliceList","apiVersion":"resource.k8s.io/v1","items":[`+
				`{"spec":{"driver":"b"}},{"spec":{"driver":"a"}},{"spec":{"driver":"b"}}]}`) // the client tells
			return
		}
		if parts[len(parts)-1] == "leases" {
			_, _ = fmt.Fprint(w, `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1"}`) // the client tells
			return
		}
		kind := map[string]string{"pods": "Pod", "events": "Event", "nodes": "Node", "status": "Pod"}[parts[len(parts)-1]]
		_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":"v1","metadata":{"name":"x"}}`, kind) // the client tells
	}))
	s.EnableHTTP2 = true
	for _, change := range prepare {
		change(s.Config)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) kubeconfig() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\nusers: [{name: u, user: {}}]\n",
		s.URL, base64.StdEncoding.EncodeToString(ca))
}

func (s *server) peer(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peers[path]
}

// TestConnectionsAreSeparate: with HTTP/2 all requests of one client share a
// connection; a stuck one must not be the heartbeat's.
func TestConnectionsAreSeparate(t *testing.T) {
	server := newServer(t)
	s := NewSource(Config{Kubeconfig: server.kubeconfig(), ContentType: "application/vnd.kubernetes.protobuf", UserAgent: "test"})
	ctx := t.Context()
	for range 2 {
		if _, err := s.CreatePod(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateEvent(ctx, &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateNode(ctx, &v1.Node{}); err != nil {
			t.Fatal(err)
		}
		clients, err := s.Clients()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clients.Lease.CoordinationV1().Leases("default").List(ctx, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	distinct := map[string]bool{}
	for _, peer := range server.peers {
		distinct[peer] = true
	}
	if len(distinct) != 4 {
		t.Errorf("four kinds of requests on %d connections: %v", len(distinct), server.peers)
	}
	if want := "POST /api/v1/nodes application/vnd.kubernetes.protobuf"; server.seen[2] != want {
		t.Errorf("%q, want %q", server.seen[2], want)
	}
}

func TestPatchIsStrategicMerge(t *testing.T) {
	server := newServer(t)
	s := NewSource(Config{Kubeconfig: server.kubeconfig()})
	if p, err := s.PatchStatus(t.Context(), "default", "web", []byte(`{}`)); err != nil || p.Name != "x" {
		t.Errorf("%v, %v", p, err)
	}
	want := "PATCH /api/v1/namespaces/default/pods/web/status application/strategic-merge-patch+json"
	if len(server.seen) != 1 || server.seen[0] != want {
		t.Errorf("%q, want %q", server.seen, want)
	}
}

func TestSource(t *testing.T) {
	first, second := newServer(t), newServer(t)
	s := NewSource(Config{Standalone: true})
	if _, err := s.Clients(); !errors.Is(err, ErrStandalone) {
		t.Errorf("without a kubeconfig: %v", err)
	}
	s.Configure(Config{})
	if _, err := s.Clients(); !errors.Is(err, ErrNoCredential) {
		t.Errorf("with one that is not there yet: %v", err)
	}
	s.Configure(Config{Kubeconfig: "{"})
	if _, err := s.Clients(); err == nil {
		t.Error("clients made of nonsense")
	}
	host := func(kubeconfig string) string {
		t.Helper()
		s.Configure(Config{Kubeconfig: kubeconfig})
		c, err := s.Clients()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(c.Host, " ", c.Generation)
	}
	if got := host(first.kubeconfig()); got != first.URL+" 1" || host(first.kubeconfig()) != got {
		t.Errorf("clients of %s", got)
	}
	if got := host(second.kubeconfig()); got != second.URL+" 2" {
		t.Errorf("after a change: clients of %s", got)
	}
	if got := host("{"); got != second.URL+" 2" {
		t.Errorf("with a damaged one: clients of %s", got)
	}
	s.Configure(Config{})
	if _, err := s.Clients(); err == nil {
		t.Error("credentials that were taken away are still used")
	}
}

// TestOldConnectionsAreClosed: what was dialled with the old credential is not
// used with the new one, not even by a request that is under way.
func TestOldConnectionsAreClosed(t *testing.T) {
	closed := make(chan struct{}, 1)
	server := newServer(t, func(config *http.Server) {
		config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				select {
				case closed <- struct{}{}:
				default:
				}
			}
		}
	})
	s := NewSource(Config{Kubeconfig: server.kubeconfig()})
	if _, err := s.CreateNode(t.Context(), &v1.Node{}); err != nil {
		t.Fatal(err)
	}
	before := server.peer("nodes")
	s.Configure(Config{Kubeconfig: server.kubeconfig() + "# rotated\n"})
	if _, err := s.CreateNode(t.Context(), &v1.Node{}); err != nil {
		t.Fatal(err)
	}
	if server.peer("nodes") == before {
		t.Error("the old connection was used again")
	}
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("the old connection was not closed")
	}
}

// TestResourceSlices: only those of the node are asked for, and those of one driver deleted.
func TestResourceSlices(t *testing.T) {
	server := newServer(t)
	s := NewSource(Config{Kubeconfig: server.kubeconfig(), ContentType: "application/json", UserAgent: "test"})
	drivers, err := s.ResourceSliceDrivers(t.Context(), "n1")
	if err != nil || !slices.Equal(drivers, []string{"a", "b"}) {
		t.Errorf("%v, %v", drivers, err)
	}
	if err := s.DeleteResourceSlices(t.Context(), "n1", "a"); err != nil {
		t.Error(err)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	const path = " /apis/resource.k8s.io/v1/resourceslices "
	if want := []string{"GET" + path + "spec.nodeName=n1", "DELETE" + path + "spec.driver=a,spec.nodeName=n1"}; !slices.Equal(server.seen, want) {
		t.Errorf("%q, want %q", server.seen, want)
	}
}
