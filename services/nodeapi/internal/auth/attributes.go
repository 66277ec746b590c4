// Package auth decides who a caller of the node API is and what they may do.
// Identity by client certificate is pure; reviews are asked of config and
// remembered for the configured times.
package auth

import (
	"net/http"
	"strings"
)

// verbs of the kubelet's authorization (fine-grained, KEP-2862).
var verbs = map[string]string{
	http.MethodPost:   "create",
	http.MethodGet:    "get",
	http.MethodHead:   "get",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// Verb is what a request's method is called in a SubjectAccessReview; empty for
// a method the API does not have.
func Verb(method string) string { return verbs[method] }

// Subresources lists the subresources of nodes that grant a path, the first
// that is allowed suffices.
func Subresources(path string) []string {
	is := func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
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
	case is("/healthz"):
		return []string{"healthz", "proxy"}
	case is("/configz"):
		return []string{"configz", "proxy"}
	}
	return []string{"proxy"}
}
