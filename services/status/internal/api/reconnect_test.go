// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/fakeapi"
)

// TestConnectionIsSwallowed: each client asks over a new connection after two requests
// that were not answered.
func TestConnectionIsSwallowed(t *testing.T) {
	server := newServer(t)
	line := fakeapi.NewLine(t, server.Listener.Addr().String())
	s := NewSource(Config{Kubeconfig: strings.ReplaceAll(server.kubeconfig(), server.Listener.Addr().String(), line.Addr())})
	for name, ask := range map[string]func(context.Context) error{
		"pods": func(ctx context.Context) error {
			_, err := s.PatchStatus(ctx, "default", "web", []byte(`{}`))
			return err
		},
		"events": func(ctx context.Context) error {
			_, err := s.CreateEvent(ctx, &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}})
			return err
		},
		"node": func(ctx context.Context) error {
			_, err := s.PatchNodeStatus(ctx, "n1", []byte(`{}`))
			return err
		},
		"lease": func(ctx context.Context) error {
			clients, err := s.Clients()
			if err != nil {
				return err
			}
			_, err = clients.Lease.CoordinationV1().Leases("default").List(ctx, metav1.ListOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ask(t.Context()); err != nil {
				t.Fatal(err)
			}
			line.Swallow()
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				if ask(ctx) == nil {
					t.Error("answered over a line that swallows")
				}
				cancel()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second) // sooner than HTTP/2 gives a connection up
			defer cancel()
			if err := ask(ctx); err != nil {
				t.Errorf("the third request: %v", err)
			}
		})
	}
}

// TestClosedConnectionIsTakenOnce: a request that was put on a connection which was closed
// before is put on the next one, with its body; one whose connection was closed under it
// fails, as it may have been carried out.
func TestClosedConnectionIsTakenOnce(t *testing.T) {
	for name, c := range map[string]struct {
		closed    int  // how many connections are closed already
		under     bool // the connection is closed while the request is on its way
		plain     bool // the body can be read once only
		requests  int
		delivered bool
	}{
		"one":           {closed: 1, requests: 2, delivered: true},
		"all but one":   {closed: requeues, requests: requeues + 1, delivered: true},
		"all":           {closed: requeues + 1, requests: requeues + 1},
		"under way":     {closed: 1, under: true, requests: 1},
		"body is gone":  {closed: 1, plain: true, requests: 1},
		"none":          {requests: 1, delivered: true},
		"none and once": {plain: true, requests: 1, delivered: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reconnecting{close: func() {}}
			asked := 0
			r.RoundTripper = roundTrip(func(request *http.Request) (*http.Response, error) {
				asked++
				if body, err := io.ReadAll(request.Body); err != nil || string(body) != "patch" {
					t.Errorf("request %d: body %q, %v", asked, body, err)
				}
				if c.under {
					r.repeated(0, context.DeadlineExceeded)
					r.repeated(0, context.DeadlineExceeded)
				}
				if asked <= c.closed {
					return nil, &net.OpError{Op: "write", Net: "tcp", Err: net.ErrClosed}
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})
			var body io.Reader = strings.NewReader("patch")
			if c.plain {
				body = io.MultiReader(body)
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://api.example", body)
			if err != nil {
				t.Fatal(err)
			}
			response, err := r.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			if (err == nil) != c.delivered || asked != c.requests {
				t.Errorf("%d requests, %v", asked, err)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestLateFailuresCloseNothing: requests that fail because their connection was closed
// do not have the next one closed.
func TestLateFailuresCloseNothing(t *testing.T) {
	r := &reconnecting{}
	closes := 0
	fail := func(began int) {
		if r.repeated(began, context.DeadlineExceeded) {
			closes++
		}
	}
	for range 16 { // under way at the same time
		fail(0)
	}
	if closes != 1 {
		t.Errorf("closed %d times", closes)
	}
	fail(1)
	if r.repeated(1, nil) {
		t.Error("closed by an answer")
	}
	fail(1)
	if closes != 1 {
		t.Error("closed although a request was answered in between")
	}
}
