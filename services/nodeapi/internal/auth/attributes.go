// SPDX-License-Identifier: Apache-2.0

// Package auth authenticates callers, by Kubernetes' own request authenticators, and
// authorizes requests, by reviews that are cached for the configured times.
package auth

import (
	"net/http"
	"slices"
	"strings"
)

// verbs of the kubelet's authorization (fine-grained, KEP-2862).
var verbs = map[string]string{
	http.MethodPost:   "create",
	http.MethodGet:    "get",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// Verb is a method's name in a SubjectAccessReview. It is empty for HEAD, OPTIONS and all
// others, which need a right to every verb.
func Verb(method string) string { return verbs[method] }

// streams are the paths that enter a container.
var streams = []string{"/exec", "/attach", "/portForward", "/run"}

// VerbOf is the verb that a request needs. To enter a container needs create, also by GET,
// with which every WebSocket begins: otherwise a right to read nodes/proxy is one to run
// commands (kubernetes/kubernetes#136550). With getStreams only the method counts, as in
// the kubelet.
func VerbOf(method, path string, getStreams bool) string {
	if !getStreams && slices.ContainsFunc(streams, func(prefix string) bool { return under(path, prefix) }) {
		return "create"
	}
	return Verb(method)
}

func under(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

// subresources of nodes that grant a path and what is below it; all other paths need proxy.
var subresources = map[string][]string{
	"/stats": {"stats"}, "/metrics": {"metrics"}, "/logs": {"log"}, "/checkpoint": {"checkpoint"},
	"/statusz": {"statusz"}, "/flagz": {"configz"}, "/configz": {"configz", "proxy"},
	"/pods": {"pods", "proxy"}, "/runningpods": {"pods", "proxy"},
	"/healthz": {"healthz", "proxy"}, "/livez": {"healthz", "proxy"}, "/readyz": {"healthz", "proxy"},
}

// Subresources lists the subresources of nodes of which one must be allowed for a path.
func Subresources(path string) []string {
	for prefix, all := range subresources {
		if under(path, prefix) {
			return all
		}
	}
	return []string{"proxy"}
}
