// SPDX-License-Identifier: Apache-2.0

package access

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
)

// routes are the paths of the HTTPS port, with handlers that do nothing.
var routes = func() *http.ServeMux {
	mux := http.NewServeMux()
	for _, pattern := range []string{
		"GET /pods", "GET /pods/{$}", "/metrics", "/metrics/probes", "/metrics/resource", "/metrics/cadvisor", "GET /stats/summary", "POST /stats/summary",
		"GET /containerLogs/{namespace}/{pod}/{container}", "GET /logs/", "/configz", "/flagz", "/statusz", "/debug/flags/v",
		"GET /debug/pprof/", "/healthz", "/healthz/ping", "/livez", "/readyz",
	} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	for _, path := range []string{"exec/{namespace}/{pod}", "attach/{namespace}/{pod}", "run/{namespace}/{pod}"} {
		for _, pattern := range []string{"GET /" + path + "/{container}", "POST /" + path + "/{container}", "GET /" + path + "/{uid}/{container}", "POST /" + path + "/{uid}/{container}"} {
			mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
		}
	}
	for _, pattern := range []string{
		"GET /portForward/{namespace}/{pod}", "POST /portForward/{namespace}/{pod}", "POST /checkpoint/{namespace}/{pod}/{container}", "GET /runningpods", "GET /runningpods/{$}",
	} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	return mux
}()

// FuzzRoutes: what is authorized, by the decoded path, is what is served, by the mux,
// which goes by the escaped one.
func FuzzRoutes(f *testing.F) {
	for _, target := range []string{
		"/pods", "/pods/", "//pods", "/exec/ns/p/c", "/%65xec/ns/p/c", "/exec%2fns/p/c", "/metrics/../exec/ns/p/c", "/metrics/%2e%2e/exec/ns/p/c",
		"http://h/exec/ns/p/c", "http://h", "*", "h:443", "/logs/../run/ns/p/c", "/logs/%2e%2e/run/ns/p/c", "/stats/summary;x", "/healthz/ping?x=/exec/", "/debug/pprof/../../exec/ns/p/c", "/Exec/ns/p/c", "/exec/ns//p/c", "/\\exec/ns/p/c", "/exec/%00/p/c",
	} {
		for _, method := range []string{"GET", "POST", "HEAD", "CONNECT", "PUT", "get"} {
			f.Add(method, target)
		}
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: n\r\n\r\n")))
		if err != nil {
			return
		}
		handler, pattern := routes.Handler(r)
		if pattern == "" {
			return
		}
		said := &discard{header: http.Header{}}
		if handler.ServeHTTP(said, r); said.status/100 == 3 {
			return // a redirect to the clean path does nothing
		}
		_, path, found := strings.Cut(pattern, " ")
		if !found {
			path = pattern
		}
		first := "/" + strings.SplitN(strings.TrimPrefix(path, "/"), "/", 2)[0]
		if !slices.Equal(auth.Subresources(first), auth.Subresources(r.URL.Path)) || auth.VerbOf(method, first, false) != auth.VerbOf(method, r.URL.Path, false) {
			t.Errorf("%s %q serves %s, and is authorized as %s", method, target, pattern, r.URL.Path)
		}
	})
}
