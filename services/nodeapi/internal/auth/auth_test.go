// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"strings"
	"testing"
)

// TestAttributes is the kubelet's table of paths and subresources (KEP-2862).
func TestAttributes(t *testing.T) {
	for path, want := range map[string]string{
		"/stats": "stats", "/stats/summary": "stats", "/metrics": "metrics", "/metrics/cadvisor": "metrics", "/logs": "log", "/logs/x/y": "log",
		"/checkpoint/ns/p/c": "checkpoint", "/statusz": "statusz", "/flagz": "configz",
		"/pods": "pods proxy", "/pods/": "pods proxy", "/runningpods/": "pods proxy", "/healthz": "healthz proxy", "/healthz/ping": "healthz proxy", "/livez": "healthz proxy", "/readyz/status": "healthz proxy", "/configz": "configz proxy",
		"/exec/ns/p/c": "proxy", "/run/ns/p/c": "proxy", "/attach/ns/p/c": "proxy", "/portForward/ns/p": "proxy", "/containerLogs/ns/p/c": "proxy", "/debug/pprof/": "proxy",
		"/": "proxy", "": "proxy", "/podsx": "proxy", "/metricsx": "proxy", "/statsx/": "proxy", "/Pods": "proxy",
	} {
		if got := strings.Join(Subresources(path), " "); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for method, want := range map[string]string{
		"GET": "get", "HEAD": "", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "OPTIONS": "", "CONNECT": "", "": "",
	} {
		if got := Verb(method); got != want {
			t.Errorf("%s: %q, want %q", method, got, want)
		}
	}
}

// TestStreamsNeedCreate: a GET that enters a container is no reading.
func TestStreamsNeedCreate(t *testing.T) {
	for _, path := range []string{"/exec/ns/p/c", "/attach/ns/p/u/c", "/portForward/ns/p", "/run/ns/p/c", "/exec", "/run/"} {
		for _, method := range []string{"GET", "POST", "HEAD", "PUT", "OPTIONS", ""} {
			if got := VerbOf(method, path, false); got != "create" {
				t.Errorf("%s %s: %q", method, path, got)
			}
			if got := VerbOf(method, path, true); got != Verb(method) {
				t.Errorf("%s %s by the kubelet's rule: %q", method, path, got)
			}
		}
	}
	for _, path := range []string{"/containerLogs/ns/p/c", "/pods", "/runningpods/", "/executed", "/metrics/exec/x", "/"} {
		if got := VerbOf("GET", path, false); got != "get" {
			t.Errorf("%s: %q", path, got)
		}
	}
}
