// Package auth decides who a caller of the node API is and what they may do.
// Callers are told apart by Kubernetes' own request authenticators; reviews are
// asked of config and remembered for the configured times.
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

// Verb is what a request's method is called in a SubjectAccessReview; empty for
// any other method (HEAD, OPTIONS ...), which only those may use who may do all.
func Verb(method string) string { return verbs[method] }

// streams are the paths that let a caller into a container.
var streams = []string{"/exec", "/attach", "/portForward", "/run"}

// VerbOf is what a request is asked to be allowed. Who enters a container needs
// create, also by a GET, with which every WebSocket begins: else a right to read
// nodes/proxy is one to run commands (kubernetes/kubernetes#136550). With
// getStreams the method alone counts, as in the kubelet.
func VerbOf(method, path string, getStreams bool) string {
	if !getStreams && slices.ContainsFunc(streams, func(prefix string) bool { return under(path, prefix) }) {
		return "create"
	}
	return Verb(method)
}

func under(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

// Subresources lists the subresources of nodes that grant a path, the first
// that is allowed suffices.
func Subresources(path string) []string {
	is := func(prefix string) bool { return under(path, prefix) }
	switch {
	case is("/stats"):
		return []string{"stats"}
	case is("/metrics"):
		return []string{"metrics"}
	case is("/logs"):
		return []string{"log"}
	case is("/checkpoint"):
		return []string{"checkpoint"}
	case is("/statusz"):
		return []string{"statusz"}
	case is("/flagz"):
		return []string{"configz"}
	case is("/pods"), is("/runningpods"):
		return []string{"pods", "proxy"}
	case is("/healthz"), is("/livez"), is("/readyz"):
		return []string{"healthz", "proxy"}
	case is("/configz"):
		return []string{"configz", "proxy"}
	}
	return []string{"proxy"}
}
