package api

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{peers: map[string]string{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
		parts := strings.Split(r.URL.Path, "/")
		s.peers[parts[len(parts)-1]] = r.RemoteAddr
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		kind := map[string]string{"pods": "Pod", "events": "Event", "nodes": "Node", "status": "Pod"}[parts[len(parts)-1]]
		_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":"v1","metadata":{"name":"x"}}`, kind) // the client tells
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) kubeconfig(t *testing.T, path string) {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\nusers: [{name: u, user: {}}]\n",
		s.URL, base64.StdEncoding.EncodeToString(ca))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestConnectionsAreSeparate: with HTTP/2 all requests of one client share a
// connection; a stuck one must not be the heartbeat's.
func TestConnectionsAreSeparate(t *testing.T) {
	server := newServer(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	server.kubeconfig(t, path)
	s := NewSource(Config{Kubeconfig: path, ContentType: "application/vnd.kubernetes.protobuf", UserAgent: "test"})
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
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	distinct := map[string]bool{}
	for _, peer := range server.peers {
		distinct[peer] = true
	}
	if len(distinct) != 3 {
		t.Errorf("three kinds of requests on %d connections: %v", len(distinct), server.peers)
	}
	if want := "POST /api/v1/nodes application/vnd.kubernetes.protobuf"; server.seen[2] != want {
		t.Errorf("%q, want %q", server.seen[2], want)
	}
}

func TestPatchIsStrategicMerge(t *testing.T) {
	server := newServer(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	server.kubeconfig(t, path)
	s := NewSource(Config{Kubeconfig: path})
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
	path := filepath.Join(t.TempDir(), "kubeconfig")
	s := NewSource(Config{})
	if _, err := s.Clients(); !errors.Is(err, ErrStandalone) {
		t.Errorf("without a kubeconfig: %v", err)
	}
	s.Configure(Config{Kubeconfig: path})
	if _, err := s.Clients(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with one that is not there yet: %v", err)
	}
	host := func() string {
		t.Helper()
		c, err := s.Clients()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(c.Host, " ", c.Generation)
	}
	first.kubeconfig(t, path)
	if got := host(); got != first.URL+" 1" || host() != got {
		t.Errorf("clients of %s", got)
	}
	second.kubeconfig(t, path)
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := host(); got != second.URL+" 2" {
		t.Errorf("after a change: clients of %s", got)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := host(); got != second.URL+" 2" {
		t.Errorf("with a damaged file: clients of %s", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Clients(); err == nil {
		t.Error("credentials that were taken away are still used")
	}
}
