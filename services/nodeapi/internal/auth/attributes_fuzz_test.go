// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"slices"
	"strings"
	"testing"
)

// granted is the kubelet's table (KEP-2862) by the first element of a path, with livez and
// readyz, which a kubelet does not have, as healthz. What is not in it needs proxy.
var granted = map[string][]string{
	"stats": {"stats"}, "metrics": {"metrics"}, "logs": {"log"}, "checkpoint": {"checkpoint"}, "statusz": {"statusz"}, "flagz": {"configz"},
	"pods": {"pods", "proxy"}, "runningpods": {"pods", "proxy"}, "configz": {"configz", "proxy"},
	"healthz": {"healthz", "proxy"}, "livez": {"healthz", "proxy"}, "readyz": {"healthz", "proxy"},
}

// FuzzAttributes: whatever a caller sends, the first element of the path decides which
// subresources grant it, a path that enters a container needs create, and every other
// request needs the verb of its method.
func FuzzAttributes(f *testing.F) {
	for first := range granted {
		for _, path := range []string{"/" + first, "/" + first + "/", "/" + first + "x", "/" + first + "/../exec", "//" + first, first} {
			f.Add("GET", path)
		}
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "get", "", "GET "} {
		f.Add(method, "/exec/ns/p/c")
		f.Add(method, "/exec")
		f.Add(method, "/execute")
		f.Add(method, "/metrics/exec/ns/p/c")
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		first := ""
		if rest, ok := strings.CutPrefix(path, "/"); ok {
			first, _, _ = strings.Cut(rest, "/")
		}
		want, ok := granted[first]
		if !ok {
			want = []string{"proxy"}
		}
		if got := Subresources(path); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
		verb := ""
		switch method {
		case "GET":
			verb = "get"
		case "POST":
			verb = "create"
		case "PUT", "PATCH", "DELETE":
			verb = map[string]string{"PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
		}
		if got := VerbOf(method, path, true); got != verb {
			t.Errorf("%q %q by the kubelet's rule: %q, want %q", method, path, got, verb)
		}
		if slices.Contains([]string{"exec", "attach", "portForward", "run"}, first) {
			verb = "create"
		}
		if got := VerbOf(method, path, false); got != verb {
			t.Errorf("%q %q: %q, want %q", method, path, got, verb)
		}
	})
}
