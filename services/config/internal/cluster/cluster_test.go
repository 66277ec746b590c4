// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sextant-node/sextant/test/apitest"
	"github.com/sextant-node/sextant/test/fakeapi"
)

// session runs one on credentials that the test hands out.
type session struct {
	mu         sync.Mutex
	kubeconfig []byte
	err        error
	changed    chan struct{}

	clients chan *Clients // each client made
	ended   chan struct{} // each session's end
	reports chan error
}

func run(t *testing.T) *session {
	s := &session{
		err: errors.New("none yet"), changed: make(chan struct{}),
		clients: make(chan *Clients, 10), ended: make(chan struct{}, 10), reports: make(chan error, 10),
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Settings:    Settings{QPS: 50, Burst: 100, ContentType: "application/vnd.kubernetes.protobuf", UserAgent: "test"},
			Credentials: s.credentials,
			Report:      func(err error) { s.reports <- err },
			Log:         slog.New(slog.DiscardHandler),
			Use: func(ctx context.Context, client *Clients) {
				s.clients <- client
				<-ctx.Done()
				s.ended <- struct{}{}
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *session) credentials() ([]byte, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kubeconfig, s.changed, s.err
}

func (s *session) set(kubeconfig []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kubeconfig, s.err = kubeconfig, err
	close(s.changed)
	s.changed = make(chan struct{})
}

func receive[T any](t *testing.T, from chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("no %s", what)
		panic("not reached")
	}
}

func kubeconfig(t *testing.T, server *apitest.Server) []byte {
	t.Helper()
	data, err := os.ReadFile(server.Kubeconfig(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestCredentialsComeAndChange: a new credential is a new session, and the old
// one's connections are closed.
func TestCredentialsComeAndChange(t *testing.T) {
	s := run(t)
	if err := receive(t, s.reports, "report"); err == nil || err.Error() != "none yet" {
		t.Fatalf("report %v", err)
	}
	first, second := apitest.New(t), apitest.New(t)
	s.set(kubeconfig(t, first), nil)
	client := receive(t, s.clients, "client")
	if err := receive(t, s.reports, "report"); err != nil {
		t.Fatalf("report %v", err)
	}
	watched, err := client.CoreV1().Services("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.set(kubeconfig(t, second), nil)
	receive(t, s.ended, "end of the session")
	client = receive(t, s.clients, "second client")
	if _, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if second.Requests("list services") != 1 {
		t.Error("the second server was not asked")
	}
	for {
		select {
		case _, open := <-watched.ResultChan():
			if open {
				continue
			}
		case <-time.After(time.Minute):
			t.Error("a connection of the old credential is still open")
		}
		break
	}
	// What cannot work is reported, and ends the session it replaces.
	s.set([]byte("{"), nil)
	receive(t, s.ended, "end of the second session")
	for err := range s.reports {
		if err != nil {
			break
		}
	}
}

// TestLimitsOfTheirOwn: who uses up one client's limit delays no other one's requests.
func TestLimitsOfTheirOwn(t *testing.T) {
	clients, closing, err := Settings{QPS: 1, Burst: 3}.Client(kubeconfig(t, apitest.New(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer closing()
	for name, client := range map[string]*kubernetes.Clientset{"pods": clients.Clientset, "reviews": clients.Reviews, "claims": clients.Claims} {
		limit := client.CoreV1().RESTClient().GetRateLimiter()
		for i := range 3 {
			if !limit.TryAccept() {
				t.Errorf("%s: request %d has to wait", name, i)
			}
		}
		if limit.TryAccept() {
			t.Errorf("%s: no limit", name)
		}
	}
}

func TestText(t *testing.T) {
	refused := errors.New("connect: connection refused")
	for want, err := range map[string]error{
		"":                            nil,
		"connect: connection refused": fmt.Errorf("list: %w - and a former one", &url.Error{Op: "Get", URL: "https://x?n=1", Err: refused}),
		"forbidden":                   errors.New("forbidden"),
	} {
		if got := Text(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestSwallowedWatch: a watch over a connection on which nothing comes back any more ends
// within 30 s, so that pods are not old for longer than a Lease lasts.
func TestSwallowedWatch(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done() // nothing happens in this cluster
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer server.CloseClientConnections()
	line := fakeapi.NewLine(t, server.Listener.Addr().String())
	clients, closing, err := Settings{QPS: 1, Burst: 3}.Client(fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: u, user: {token: t}}],
contexts: [{name: c, context: {cluster: c, user: u}}]}`, "https://"+line.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer closing()
	watched, err := clients.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	line.Swallow()
	select {
	case <-watched.ResultChan():
	case <-time.After(40 * time.Second): // as long as a Lease lasts; the promised 30 s on a machine that is slow
		t.Error("the watch has not ended")
	}
}
