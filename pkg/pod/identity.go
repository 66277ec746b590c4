// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Annotations by which the node marks where a pod comes from.
const (
	// ConfigSourceAnnotation is the source: file, http or api.
	ConfigSourceAnnotation = "kubernetes.io/config.source"
	// ConfigSeenAnnotation is when the pod was first seen, RFC 3339 with nanoseconds.
	ConfigSeenAnnotation = "kubernetes.io/config.seen"
	// ConfigHashAnnotation is the identity of a static pod's manifest: its UID.
	ConfigHashAnnotation = "kubernetes.io/config.hash"
	// ConfigMirrorAnnotation marks a mirror pod and holds the static pod's config hash.
	ConfigMirrorAnnotation = v1.MirrorPodAnnotationKey
)

// Sources of pods.
const (
	SourceFile = "file"
	SourceHTTP = "http"
	SourceAPI  = "api"
)

// Priority values the node treats specially.
const (
	// SystemCriticalPriority is the lowest priority of a critical pod.
	SystemCriticalPriority = int32(2_000_000_000)
	// SystemNodeCritical is the class of pods whose loss breaks the node.
	SystemNodeCritical = "system-node-critical"
)

// ServiceAccount is the name of the account that a pod runs as (API default).
func ServiceAccount(p *v1.Pod) string { return cmp.Or(p.Spec.ServiceAccountName, "default") }

// maxUID bounds a UID, in bytes, so that it is the name of a folder with room for more.
const maxUID = 200

// CheckUID makes sure that a UID can be the name of a folder, and a part of the names
// of a log folder and of a cgroup: all three are removed with what is below them in the
// end. The API server's are UUIDs; a manifest may bring its own.
func CheckUID(uid types.UID) error {
	switch {
	case uid == "":
		return errors.New("required")
	case len(uid) > maxUID:
		return fmt.Errorf("has %d bytes, at most %d are allowed", len(uid), maxUID)
	case strings.HasPrefix(string(uid), "."), !utf8.ValidString(string(uid)), strings.ContainsFunc(string(uid), func(r rune) bool {
		return r == '/' || r == '_' || !unicode.IsPrint(r)
	}):
		return fmt.Errorf("%q cannot be part of a file's name: it must be printable, without / and _, and not begin with a dot", uid)
	}
	return nil
}

// FullName is <name>_<namespace>: unique on a node at any time, unlike the UID it
// survives the replacement of a static pod by its next version.
func FullName(p *v1.Pod) string {
	return BuildFullName(p.Name, p.Namespace)
}

// BuildFullName is FullName from its parts.
func BuildFullName(name, namespace string) string {
	return name + "_" + namespace
}

// String names a pod for people: name_namespace(uid), the form the kubelet uses in
// messages.
func String(p *v1.Pod) string {
	if p == nil {
		return "<nil>"
	}
	return FormatString(p.Name, p.Namespace, p.UID)
}

// FormatString is String from its parts.
func FormatString(name, namespace string, uid types.UID) string {
	return name + "_" + namespace + "(" + string(uid) + ")"
}

// IsStatic reports whether the pod comes from a manifest rather than the API server.
func IsStatic(p *v1.Pod) bool {
	s, ok := p.Annotations[ConfigSourceAnnotation]
	return ok && s != SourceAPI
}

// IsMirror reports whether the pod is the API server's copy of a static pod.
func IsMirror(p *v1.Pod) bool {
	_, ok := p.Annotations[ConfigMirrorAnnotation]
	return ok
}

// Priority of the pod; zero where it has none.
func Priority(p *v1.Pod) int32 { return ptr.Deref(p.Spec.Priority, 0) }

// IsCritical reports whether the pod may preempt others and is spared by pressure:
// static and mirror pods, and those with a system priority.
func IsCritical(p *v1.Pod) bool {
	return IsStatic(p) || IsMirror(p) || Priority(p) >= SystemCriticalPriority
}

// IsNodeCritical reports whether the pod is critical and of class system-node-critical.
func IsNodeCritical(p *v1.Pod) bool {
	return IsCritical(p) && p.Spec.PriorityClassName == SystemNodeCritical
}

// IsTerminalPhase reports whether the phase is one that is never left.
func IsTerminalPhase(p v1.PodPhase) bool {
	return p == v1.PodSucceeded || p == v1.PodFailed
}
