package pod

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

// FullName is <name>_<namespace>: unique on a node at any time, unlike the UID it
// survives the replacement of a static pod by its next version.
func FullName(p *v1.Pod) string {
	return BuildFullName(p.Name, p.Namespace)
}

// BuildFullName is FullName from its parts.
func BuildFullName(name, namespace string) string {
	return name + "_" + namespace
}

// ParseFullName takes a full name apart.
func ParseFullName(fullName string) (name, namespace string, err error) {
	name, namespace, ok := strings.Cut(fullName, "_")
	if !ok || name == "" || namespace == "" || strings.Contains(namespace, "_") {
		return "", "", fmt.Errorf("parse pod full name %q: want <name>_<namespace>", fullName)
	}
	return name, namespace, nil
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

// Source returns where the pod comes from, "" when it does not say.
func Source(p *v1.Pod) string {
	return p.Annotations[ConfigSourceAnnotation]
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

// IsCritical reports whether the pod may preempt others and is spared by pressure:
// static and mirror pods, and those with a system priority.
func IsCritical(p *v1.Pod) bool {
	return IsStatic(p) || IsMirror(p) || (p.Spec.Priority != nil && *p.Spec.Priority >= SystemCriticalPriority)
}

// IsNodeCritical reports whether the pod is critical and of class system-node-critical.
func IsNodeCritical(p *v1.Pod) bool {
	return IsCritical(p) && p.Spec.PriorityClassName == SystemNodeCritical
}

// IsPreemptable reports whether preemptor may take the place of victim.
func IsPreemptable(preemptor, victim *v1.Pod) bool {
	if IsCritical(preemptor) && !IsCritical(victim) {
		return true
	}
	return preemptor.Spec.Priority != nil && victim.Spec.Priority != nil &&
		*preemptor.Spec.Priority > *victim.Spec.Priority
}

// IsTerminalPhase reports whether the phase is one that is never left.
func IsTerminalPhase(p v1.PodPhase) bool {
	return p == v1.PodSucceeded || p == v1.PodFailed
}

// IsHostNetwork reports whether the pod shares the node's network namespace.
func IsHostNetwork(p *v1.Pod) bool { return p.Spec.HostNetwork }
