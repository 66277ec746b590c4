// SPDX-License-Identifier: Apache-2.0

// Package downward gives the values of a pod's own fields and resources: what a fieldRef
// or a resourceFieldRef stands for in an environment variable, and the files of a
// downward API volume. It is pure and keeps nothing.
package downward

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Addresses are the addresses a field of the status may stand for, primary first.
type Addresses struct {
	PodIPs, HostIPs []string
}

// Env is the value of a fieldRef in an environment variable.
func Env(p *v1.Pod, ref *v1.ObjectFieldSelector, a Addresses) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", ref.APIVersion)
	}
	switch ref.FieldPath {
	case "spec.nodeName", "spec.host":
		return p.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.hostIP":
		if len(a.HostIPs) == 0 {
			return "", errors.New("status.hostIP: the node has no address yet")
		}
		return a.HostIPs[0], nil
	case "status.hostIPs":
		if len(a.HostIPs) == 0 {
			return "", errors.New("status.hostIPs: the node has no address yet")
		}
		return strings.Join(a.HostIPs, ","), nil
	case "status.podIP":
		if len(a.PodIPs) == 0 {
			return "", nil
		}
		return a.PodIPs[0], nil
	case "status.podIPs":
		return strings.Join(a.PodIPs, ","), nil
	}
	return Metadata(p, ref.FieldPath)
}

// Metadata is the value of a field of the metadata, as volumes may have it: name,
// namespace, uid, labels, annotations, and one label or annotation by key.
func Metadata(p *v1.Pod, fieldPath string) (string, error) {
	switch fieldPath {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "metadata.labels":
		return Format(p.Labels), nil
	case "metadata.annotations":
		return Format(p.Annotations), nil
	}
	field, key, ok := Subscript(fieldPath)
	if !ok {
		return "", fmt.Errorf("unsupported fieldPath: %v", fieldPath)
	}
	var from map[string]string
	check := key
	switch field {
	case "metadata.labels":
		from = p.Labels
	case "metadata.annotations":
		from, check = p.Annotations, strings.ToLower(key)
	default:
		return "", fmt.Errorf("fieldPath %q does not support subscript", fieldPath)
	}
	if problems := validation.IsQualifiedName(check); len(problems) > 0 {
		return "", fmt.Errorf("invalid key subscript in %s: %s", fieldPath, strings.Join(problems, ";"))
	}
	return from[key], nil
}

// Subscript splits metadata.labels['key'] into field and key.
func Subscript(fieldPath string) (field, key string, ok bool) {
	inner, ok := strings.CutSuffix(fieldPath, "']")
	if !ok {
		return fieldPath, "", false
	}
	field, key, ok = strings.Cut(inner, "['")
	if !ok || field == "" {
		return fieldPath, "", false
	}
	return field, key, true
}

// Format writes labels or annotations as a file has them: key="value" lines sorted by
// key, without a newline at the end.
func Format(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

// Resource is the value of a resourceFieldRef. own is the container the reference stands
// in, nil in a volume; the reference may name another one of the pod. A limit that is not
// set is that of the pod where it has pod-level limits, otherwise what the node can
// allocate. The value is in units of the divisor, rounded up.
func Resource(p *v1.Pod, own *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	c := own
	if ref.ContainerName != "" {
		if c = pod.FindDeclared(p, ref.ContainerName); c == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	if c == nil {
		return "", errors.New("resourceFieldRef: containerName is needed")
	}
	kind, rest, ok := strings.Cut(ref.Resource, ".")
	name := v1.ResourceName(rest)
	hugePages := strings.HasPrefix(rest, v1.ResourceHugePagesPrefix)
	known := hugePages || name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
	if !ok || !known || (kind != "limits" && kind != "requests") {
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	quantity := c.Resources.Requests[name]
	if kind == "limits" {
		quantity = c.Resources.Limits[name]
		if quantity.IsZero() && !hugePages {
			quantity = defaultLimit(p, name, allocatable)
		}
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	amount, unit := quantity.Value(), divisor.Value()
	if name == v1.ResourceCPU {
		amount, unit = quantity.MilliValue(), divisor.MilliValue()
	}
	if unit <= 0 {
		return "", fmt.Errorf("resourceFieldRef: divisor %s is not a positive amount of %s", divisor.String(), name)
	}
	value := amount / unit
	if amount%unit > 0 {
		value++
	}
	return strconv.FormatInt(value, 10), nil
}

func defaultLimit(p *v1.Pod, name v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	q, ok := allocatable[name]
	if p.Spec.Resources != nil && name != v1.ResourceEphemeralStorage && ok {
		if limit := p.Spec.Resources.Limits[name]; !limit.IsZero() {
			return limit
		}
	}
	return q
}

// File is one file of a volume.
type File struct {
	Data []byte
	// Mode bits of the file.
	Mode int32
}

// Files are the files of a downward API volume by their path inside it. defaultMode
// applies to items without a mode. The error joins all that could not be resolved.
func Files(p *v1.Pod, items []v1.DownwardAPIVolumeFile, defaultMode int32, allocatable v1.ResourceList) (map[string]File, error) {
	files := make(map[string]File, len(items))
	var failed error
	for i := range items {
		item := &items[i]
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = Metadata(p, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = Resource(p, nil, item.ResourceFieldRef, allocatable)
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		files[path.Clean(item.Path)] = File{Data: []byte(value), Mode: ptr.Deref(item.Mode, defaultMode)}
	}
	if failed != nil {
		return nil, failed
	}
	return files, nil
}
