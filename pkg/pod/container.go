// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ContainerKind says which part a container plays in its pod.
type ContainerKind int

// The kinds of container.
const (
	// Regular containers run side by side once all init containers are done.
	Regular ContainerKind = iota
	// Init containers run one by one, each to its end.
	Init
	// Sidecar containers are init containers with restartPolicy Always: the next one
	// starts when they have started, and they run for as long as the pod.
	Sidecar
	// Ephemeral containers are added to a running pod and never restarted.
	Ephemeral
)

// IsSidecar reports whether an init container is a sidecar (KEP-753).
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Containers yields every container of the pod in start order: init containers and
// sidecars as listed, then regular, then ephemeral ones. The pointers reach into p,
// save for ephemeral containers, which are converted copies.
func Containers(p *v1.Pod) iter.Seq2[ContainerKind, *v1.Container] {
	return func(yield func(ContainerKind, *v1.Container) bool) {
		for i := range p.Spec.InitContainers {
			c := &p.Spec.InitContainers[i]
			kind := Init
			if IsSidecar(c) {
				kind = Sidecar
			}
			if !yield(kind, c) {
				return
			}
		}
		for i := range p.Spec.Containers {
			if !yield(Regular, &p.Spec.Containers[i]) {
				return
			}
		}
		for i := range p.Spec.EphemeralContainers {
			if !yield(Ephemeral, new(v1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))) {
				return
			}
		}
	}
}

// Uses reports whether a container of the pod mounts a volume, and whether one has it as a
// device.
func Uses(p *v1.Pod, volume string) (mounts, devices bool) {
	for _, c := range Containers(p) {
		mounts = mounts || slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume })
		devices = devices || slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool { return d.Name == volume })
	}
	return mounts, devices
}

// UsedVolumes are the pod's volumes that a container uses. The others are not made, as by a
// kubelet: a pod starts though one of them cannot be.
func UsedVolumes(p *v1.Pod) (all []v1.Volume) {
	for _, v := range p.Spec.Volumes {
		if mounts, devices := Uses(p, v.Name); mounts || devices {
			all = append(all, v)
		}
	}
	return all
}

// FindContainer returns the container of that name and its kind, nil when there is none.
func FindContainer(p *v1.Pod, name string) (*v1.Container, ContainerKind) {
	for kind, c := range Containers(p) {
		if c.Name == name {
			return c, kind
		}
	}
	return nil, Regular
}

// FindDeclared is FindContainer for those that a pod has from the start: no ephemeral ones.
func FindDeclared(p *v1.Pod, name string) *v1.Container {
	if c, kind := FindContainer(p, name); kind != Ephemeral {
		return c
	}
	return nil
}

// ContainerFieldPath is the fieldPath of an event's involvedObject:
// spec.containers{name}, spec.initContainers{name} or spec.ephemeralContainers{name}.
// It is "" when the pod has no such container.
func ContainerFieldPath(p *v1.Pod, name string) string {
	c, kind := FindContainer(p, name)
	if c == nil {
		return ""
	}
	list := "containers"
	switch kind {
	case Init, Sidecar:
		list = "initContainers"
	case Ephemeral:
		list = "ephemeralContainers"
	}
	return "spec." + list + "{" + name + "}"
}
