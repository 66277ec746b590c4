// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelettypes "k8s.io/kubelet/pkg/types"
	"k8s.io/utils/dump"

	"github.com/sextant-node/sextant/pkg/quiet"
)

// Labels of sandboxes and containers.
const (
	PodNameLabel       = kubelettypes.KubernetesPodNameLabel
	PodNamespaceLabel  = kubelettypes.KubernetesPodNamespaceLabel
	PodUIDLabel        = kubelettypes.KubernetesPodUIDLabel
	ContainerNameLabel = kubelettypes.KubernetesContainerNameLabel
)

// Annotations of containers.
const (
	HashAnnotation                     = "io.kubernetes.container.hash"
	RestartCountAnnotation             = "io.kubernetes.container.restartCount"
	TerminationMessagePathAnnotation   = "io.kubernetes.container.terminationMessagePath"
	TerminationMessagePolicyAnnotation = "io.kubernetes.container.terminationMessagePolicy"
	PreStopHandlerAnnotation           = "io.kubernetes.container.preStopHandler"
	PortsAnnotation                    = "io.kubernetes.container.ports"
	DeletionGracePeriodAnnotation      = "io.kubernetes.pod.deletionGracePeriod"
	TerminationGracePeriodAnnotation   = "io.kubernetes.pod.terminationGracePeriod"
)

// SandboxLabels are the labels of a pod's sandbox: the pod's own and its identity.
func SandboxLabels(p *v1.Pod) map[string]string {
	labels := make(map[string]string, len(p.Labels)+3)
	maps.Copy(labels, p.Labels)
	setIdentity(labels, p)
	return labels
}

// SandboxAnnotations are the annotations of a pod's sandbox: the pod's own.
func SandboxAnnotations(p *v1.Pod) map[string]string {
	return maps.Clone(p.Annotations)
}

// ContainerLabels are the labels of a container: its and the pod's identity only.
func ContainerLabels(p *v1.Pod, c *v1.Container) map[string]string {
	labels := make(map[string]string, 4)
	setIdentity(labels, p)
	labels[ContainerNameLabel] = c.Name
	return labels
}

func setIdentity(labels map[string]string, p *v1.Pod) {
	labels[PodNameLabel] = p.Name
	labels[PodNamespaceLabel] = p.Namespace
	labels[PodUIDLabel] = string(p.UID)
}

// ContainerAnnotations are the annotations of one instance of a container: all that is
// needed to stop it properly when the pod's specification is no longer at hand.
// extra are annotations asked for by device plugins; they never replace ours.
func ContainerAnnotations(p *v1.Pod, c *v1.Container, restartCount int, extra map[string]string) (map[string]string, error) {
	a := make(map[string]string, len(extra)+8)
	maps.Copy(a, extra)
	a[HashAnnotation] = strconv.FormatUint(ContainerHash(c), 16)
	a[RestartCountAnnotation] = strconv.Itoa(restartCount)
	a[TerminationMessagePathAnnotation] = c.TerminationMessagePath
	a[TerminationMessagePolicyAnnotation] = string(c.TerminationMessagePolicy)
	if g := p.DeletionGracePeriodSeconds; g != nil {
		a[DeletionGracePeriodAnnotation] = strconv.FormatInt(*g, 10)
	}
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
		a[TerminationGracePeriodAnnotation] = strconv.FormatInt(*g, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		raw, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("container %q: lifecycle.preStop: %w", c.Name, err)
		}
		a[PreStopHandlerAnnotation] = string(raw)
	}
	if len(c.Ports) > 0 {
		raw, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, fmt.Errorf("container %q: ports: %w", c.Name, err)
		}
		a[PortsAnnotation] = string(raw)
	}
	return a, nil
}

// ContainerHash identifies what a container must be restarted for when it changes: its
// name and its image. It is 32-bit FNV-1a over the kubelet's print of the JSON object
// {"image":…,"name":…}; the value is compared with the annotation of running containers
// and has to stay as it is.
func ContainerHash(c *v1.Container) uint64 {
	raw, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil {
		panic(err) // two strings always marshal
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(dump.ForHash(raw)))
	return uint64(h.Sum32())
}

// SandboxInfo is the identity a sandbox or a container carries in its labels.
type SandboxInfo struct {
	Name, Namespace string
	UID             types.UID
}

// FullName of the pod the labels name.
func (s SandboxInfo) FullName() string { return BuildFullName(s.Name, s.Namespace) }

// ErrNotOurs is returned for a sandbox or container that carries no pod's identity: it
// was not made for Kubernetes and is none of our business.
var ErrNotOurs = errors.New("labels name no pod")

// ParseSandbox reads the identity of the pod back from labels.
func ParseSandbox(labels map[string]string) (SandboxInfo, error) {
	info := SandboxInfo{
		Name:      labels[PodNameLabel],
		Namespace: labels[PodNamespaceLabel],
		UID:       types.UID(labels[PodUIDLabel]),
	}
	if info.Name == "" || info.Namespace == "" || info.UID == "" {
		return info, ErrNotOurs
	}
	return info, nil
}

// ContainerInfo is what a container carries in its labels and annotations.
type ContainerInfo struct {
	Pod  SandboxInfo
	Name string
	// Hash of the specification it was made from (ContainerHash).
	Hash uint64
	// RestartCount is the number of instances before this one.
	RestartCount int
	// DeletionGrace and TerminationGrace are in seconds, nil when not recorded.
	DeletionGrace, TerminationGrace *int64
	TerminationMessagePath          string
	TerminationMessagePolicy        v1.TerminationMessagePolicy
	PreStop                         *v1.LifecycleHandler
	Ports                           []v1.ContainerPort
}

// ParseContainer reads back what ContainerLabels and ContainerAnnotations wrote. The error is
// ErrNotOurs when labels name no container of a pod. Otherwise the information is usable even with an
// error: the error joins what could not be read, and those fields are zero.
func ParseContainer(labels, annotations map[string]string) (ContainerInfo, error) {
	var info ContainerInfo
	var err error
	if info.Pod, err = ParseSandbox(labels); err != nil {
		return info, err
	}
	if info.Name = labels[ContainerNameLabel]; info.Name == "" {
		return info, ErrNotOurs
	}
	r := reader{annotations: annotations}
	info.Hash = r.hex(HashAnnotation)
	info.RestartCount = r.int(RestartCountAnnotation)
	info.DeletionGrace = r.seconds(DeletionGracePeriodAnnotation)
	info.TerminationGrace = r.seconds(TerminationGracePeriodAnnotation)
	info.TerminationMessagePath = annotations[TerminationMessagePathAnnotation]
	info.TerminationMessagePolicy = v1.TerminationMessagePolicy(annotations[TerminationMessagePolicyAnnotation])
	if r.json(PreStopHandlerAnnotation, &info.PreStop) != nil {
		info.PreStop = nil
	}
	if r.json(PortsAnnotation, &info.Ports) != nil {
		info.Ports = nil
	}
	return info, r.err
}

// reader reads annotations and joins the errors.
type reader struct {
	annotations map[string]string
	err         error
}

func (r *reader) fail(key string, err error) error {
	// The errors of these parsers quote what they read.
	err = fmt.Errorf("annotation %s: %s", key, quiet.Cut(err.Error(), 256))
	r.err = errors.Join(r.err, err)
	return err
}

func (r *reader) hex(key string) uint64 {
	s, ok := r.annotations[key]
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		_ = r.fail(key, err)
		return 0
	}
	return n
}

func (r *reader) int(key string) int {
	s, ok := r.annotations[key]
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		_ = r.fail(key, err)
		return 0
	}
	return int(n)
}

func (r *reader) seconds(key string) *int64 {
	s, ok := r.annotations[key]
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		_ = r.fail(key, err)
		return nil
	}
	return &n
}

func (r *reader) json(key string, into any) error {
	s, ok := r.annotations[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal([]byte(s), into); err != nil {
		return r.fail(key, err)
	}
	return nil
}
