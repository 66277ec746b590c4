// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func newServer() *server {
	s := &server{grpcHealth: health.NewServer(), exit: make(chan int, 1)}
	s.setHealthy(true)
	s.ready.Store(true)
	return s
}

func TestRoutes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "note")
	if err := os.WriteFile(file, []byte("inside"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HELLO_TEST", "a=b")
	s := newServer()
	srv := httptest.NewServer(s.routes())
	defer srv.Close()
	for _, step := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/", 200, "hello from "},
		{"GET", "/other", 404, ""},
		{"GET", "/healthz", 200, "ok"},
		{"POST", "/healthz?ok=false", 500, "no"},
		{"GET", "/healthz", 500, "no"},
		{"GET", "/ready", 200, "ok"},
		{"POST", "/ready?ok=maybe", 400, "ok: "},
		{"POST", "/ready?ok=false", 500, "no"},
		{"POST", "/ready?ok=true", 200, "ok"},
		{"GET", "/env", 200, `"HELLO_TEST":"a=b"`},
		{"GET", "/file?path=" + file, 200, "inside"},
		{"GET", "/file?path=" + file + "x", 404, ""},
		{"GET", "/bytes?n=3", 200, "\xe9\xe9\xe9"},
		{"GET", "/bytes?n=x", 400, "n: "},
		{"GET", "/redirect?to=/env", 200, `"HELLO_TEST":"a=b"`},
		{"GET", "/slow?for=1ms", 200, "at last"},
		{"GET", "/slow?for=long", 400, ""},
		{"GET", "/burn?for=1ms", 200, " rounds"},
		{"GET", "/burn?for=long", 400, ""},
		{"GET", "/hold?bytes=4097", 200, "4097 bytes held"},
		{"GET", "/hold?bytes=-1", 400, ""},
		{"GET", "/threads?n=1", 200, "1 begun"},
		{"GET", "/many?n=x", 400, ""},
		{"GET", "/exit?code=7", 200, "code 7"},
	} {
		req, err := http.NewRequest(step.method, srv.URL+step.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		if _, err := body.ReadFrom(resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != step.status || !strings.Contains(body.String(), step.body) {
			t.Errorf("%s %s: %d %q, want %d with %q", step.method, step.path, resp.StatusCode, body.String(), step.status, step.body)
		}
	}
	if code := <-s.exit; code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	got, err := s.grpcHealth.Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("gRPC health = %v, %v, want what /healthz says", got, err)
	}
}

func TestTools(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a")
	for _, step := range []struct {
		args string
		code int
		out  string
	}{
		{"echo two words", 0, "two words\n"},
		{"test " + a, 1, ""},
		{"touch " + a, 0, ""},
		{"test " + a, 0, ""},
		{"cat " + a, 0, ""},
		{"cat " + a + "x", 1, ""},
		{"exit 3", 3, ""},
		{"exit x", 2, ""},
		{"sleep 1ms", 0, ""},
		{"sleep x", 2, ""},
		{"cat", 2, ""},
		{"dance now", 2, ""},
		{"get http://127.0.0.1:1/", 1, ""},
	} {
		var out bytes.Buffer
		f := strings.Fields(step.args)
		if code, err := runTool(f[0], f[1:], &out); code != step.code || out.String() != step.out {
			t.Errorf("%s: code %d (%v), output %q; want %d, %q", step.args, code, err, out.String(), step.code, step.out)
		}
	}
}
