// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/env"
)

// ContainerInput is everything a container's configuration depends on.
type ContainerInput struct {
	Pod       *v1.Pod
	Container *v1.Container
	// RestartCount of this instance.
	RestartCount int
	// ImageRef is the image as the runtime knows it.
	ImageRef  string
	ImageUser pod.ImageUser
	// Vars is the environment without what device plugins add.
	Vars    []env.Var
	Mounts  []*runtimeapi.Mount
	Devices []*runtimeapi.Device
	// Allocated is what the resource managers give.
	Allocated Allocated
	// TargetID is the container whose processes an ephemeral one sees.
	TargetID string
	// StopSignals honours lifecycle.stopSignal (gate ContainerStopSignals).
	StopSignals bool
	Security    pod.SecurityOptions
	Resources   pod.ResourceOptions
	MemoryQoS   *MemoryQoS
}

// Allocated is what device plugins, CDI and resource managers give to a
// container. Its mounts are part of the mounts.
type Allocated struct {
	Envs, Annotations map[string]string
	Devices           []*runtimeapi.Device
	CDIDevices        []string
	// CPUSet and MemorySet are cgroup lists; empty for no pinning.
	CPUSet, MemorySet string
}

// Container is the configuration of one instance of a container.
func Container(in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	p, c := in.Pod, in.Container
	if err := pod.VerifyNonRoot(p, c, in.ImageUser); err != nil {
		return nil, err
	}
	annotations, err := pod.ContainerAnnotations(p, c, in.RestartCount, in.Allocated.Annotations)
	if err != nil {
		return nil, err
	}
	security, err := pod.ContainerSecurity(p, c, in.ImageUser, in.Security)
	if err != nil {
		return nil, err
	}
	if ns := security.NamespaceOptions; in.TargetID != "" && ns.Pid == runtimeapi.NamespaceMode_CONTAINER {
		ns.Pid, ns.TargetId = runtimeapi.NamespaceMode_TARGET, in.TargetID
	}
	vars := in.AllVars()
	command, args, err := env.CommandLine(c.Command, c.Args, vars)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.RestartCount)},
		Image:       &runtimeapi.ImageSpec{Image: in.ImageRef, UserSpecifiedImage: c.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Envs:        keyValues(vars),
		Mounts:      in.Mounts,
		Devices:     append(slices.Clone(in.Allocated.Devices), in.Devices...),
		CDIDevices:  cdi(in.Allocated.CDIDevices),
		Labels:      pod.ContainerLabels(p, c),
		Annotations: annotations,
		LogPath:     pod.ContainerLogPath(c.Name, in.RestartCount),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux:       &runtimeapi.LinuxContainerConfig{Resources: Resources(in), SecurityContext: security},
	}
	if in.StopSignals && c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		out.StopSignal = runtimeapi.Signal(runtimeapi.Signal_value[string(*c.Lifecycle.StopSignal)])
	}
	return out, nil
}

// Resources are the cgroup values of a container, at its start and when it is
// resized.
func Resources(in ContainerInput) *runtimeapi.LinuxContainerResources {
	out := pod.ContainerResources(in.Pod, in.Container, in.Resources)
	out.CpusetCpus, out.CpusetMems = in.Allocated.CPUSet, in.Allocated.MemorySet
	if in.MemoryQoS != nil {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		maps.Copy(out.Unified, in.MemoryQoS.unified(in.Pod, in.Container))
	}
	return out
}

// AllVars is the whole environment: what device plugins add comes first.
func (in ContainerInput) AllVars() []env.Var {
	var vars []env.Var
	for _, name := range slices.Sorted(maps.Keys(in.Allocated.Envs)) {
		vars = append(vars, env.Var{Name: name, Value: in.Allocated.Envs[name]})
	}
	return append(vars, in.Vars...)
}

func keyValues(vars []env.Var) []*runtimeapi.KeyValue {
	out := make([]*runtimeapi.KeyValue, len(vars))
	for i, v := range vars {
		out[i] = &runtimeapi.KeyValue{Key: v.Name, Value: []byte(v.Value)}
	}
	return out
}

func cdi(names []string) []*runtimeapi.CDIDevice {
	var out []*runtimeapi.CDIDevice
	for _, name := range names {
		out = append(out, &runtimeapi.CDIDevice{Name: name})
	}
	return out
}
