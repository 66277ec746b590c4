// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/env"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/criconfig"
	"github.com/sextant-node/sextant/services/podworker/internal/netfile"
)

// createRequest gathers and writes what a container needs but for its termination
// log, the host file terminationLog. Its errors are those of CreateContainerConfigError.
func (a *requests) createRequest(ctx context.Context, spec ContainerSpec, c *v1.Container, terminationLog string) (*runtimeapi.CreateContainerRequest, error) {
	p := spec.Sandbox.Pod
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	sandbox, err := a.sandboxConfig(ctx, spec.Sandbox, false)
	if err != nil {
		return nil, err
	}
	if err := a.makeContainerDirs(p, c.Name); err != nil {
		return nil, fmt.Errorf("create container log directory for container %s failed: %w", c.Name, err)
	}
	in, err := a.containerInput(ctx, cfg, spec, c)
	if err != nil {
		return nil, err
	}
	if in.Vars, err = a.vars(spec, c); err != nil {
		return nil, err
	}
	if in.ImageUser, err = a.imageUser(ctx, spec.ImageRef); err != nil {
		return nil, err
	}
	if in.Devices, err = criconfig.Devices(c, spec.Volumes); err != nil {
		return nil, err
	}
	if in.Mounts, err = a.mounts(ctx, cfg, spec, c, in, terminationLog); err != nil {
		return nil, err
	}
	config, err := criconfig.Container(in)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.CreateContainerRequest{PodSandboxId: spec.SandboxID, Config: config, SandboxConfig: sandbox}, nil
}

// containerInput is the node's and the allocation's part of a configuration.
func (a *requests) containerInput(ctx context.Context, cfg *kubeletconfig.Config, spec ContainerSpec, c *v1.Container) (criconfig.ContainerInput, error) {
	security, err := a.securityOptions(ctx, cfg, spec.Sandbox)
	if err != nil {
		return criconfig.ContainerInput{}, err
	}
	in := criconfig.ContainerInput{
		Pod: spec.Sandbox.Pod, Container: c, RestartCount: spec.RestartCount, ImageRef: spec.ImageRef, TargetID: spec.TargetID,
		StopSignals: cfg.Gate("ContainerStopSignals"), Security: security, Resources: a.resourceOptions(cfg),
		Allocated: criconfig.Allocated{
			Envs: spec.Allocation.Envs, Annotations: spec.Allocation.Annotations, Devices: spec.Allocation.Devices,
			CDIDevices: spec.Allocation.CDIDevices, CPUSet: spec.Allocation.CPUSet, MemorySet: spec.Allocation.MemorySet,
		},
	}
	in.Resources.ExclusiveCPUs = spec.Allocation.ExclusiveCPUs
	if in.Resources.CgroupV2 && cfg.Gate("MemoryQoS") {
		memory := a.deps.Lookups.Node().Allocatable[v1.ResourceMemory]
		in.MemoryQoS = &criconfig.MemoryQoS{
			Tiered:           cfg.Kubelet.MemoryReservationPolicy == "TieredReservation",
			ThrottlingFactor: ptr.Deref(cfg.Kubelet.MemoryThrottlingFactor, 0.9),
			NodeAllocatable:  memory.Value(), PageSize: int64(os.Getpagesize()),
		}
	}
	return in, nil
}

func (a *requests) vars(spec ContainerSpec, c *v1.Container) ([]env.Var, error) {
	p, node := spec.Sandbox.Pod, a.deps.Lookups.Node()
	in := env.Input{
		Pod: p, Container: c, PodIPs: podstatus.SortIPs(spec.PodIPs, node.IPs), HostIPs: node.IPs, NodeAllocatable: node.Allocatable,
		Objects: a.deps.Lookups, Files: envFiles(spec.Volumes),
	}
	if len(in.PodIPs) == 0 && p.Spec.HostNetwork {
		in.PodIPs = node.IPs
	}
	if in.NodeAllocatable == nil {
		in.NodeAllocatable = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(node.MemoryCapacity, resource.BinarySI)}
	}
	var err error
	if in.Services, err = a.deps.Lookups.Services(p.Namespace); err != nil && !pod.IsStatic(p) {
		// A static pod may be what makes services known; it starts without.
		return nil, err
	}
	return env.Build(in)
}

// envFiles reads files that a fileKeyRef names from mounted volumes.
type envFiles map[string]Volume

// maxEnvFile bounds an env file, in bytes.
const maxEnvFile = 1 << 20

// EnvFile implements env.Files.
func (f envFiles) EnvFile(volume, path string) ([]byte, error) {
	v, ok := f[volume]
	if !ok {
		return nil, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", volume)
	}
	root, err := os.OpenRoot(v.HostPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // only read
	content, err := readRegular(func(flags int) (*os.File, error) { return root.OpenFile(path, flags, 0) }, maxEnvFile+1)
	if err == nil && len(content) > maxEnvFile {
		return nil, fmt.Errorf("longer than %d bytes", maxEnvFile)
	}
	return content, err
}

// mounts prepares what a container mounts and lists it.
func (a *requests) mounts(ctx context.Context, cfg *kubeletconfig.Config, spec ContainerSpec, c *v1.Container, in criconfig.ContainerInput, terminationLog string) ([]*runtimeapi.Mount, error) {
	p := spec.Sandbox.Pod
	mount := criconfig.MountInput{
		Container: c, Vars: env.Values(in.AllVars()), Volumes: spec.Volumes, SubPaths: map[int]string{}, More: spec.Allocation.Mounts,
		RecursiveReadOnly: a.deps.Lookups.Node().Handlers[spec.Sandbox.RuntimeHandler].RecursiveReadOnly,
		SELinux:           a.host.selinux(), UserNamespace: in.Security.UserNamespace, TerminationLog: terminationLog,
	}
	if cfg.Gate("RuntimeClassInImageCriApi") {
		for _, v := range spec.Volumes {
			if v.Image != nil { // the volumes are this container's own
				v.Image.RuntimeHandler = spec.Sandbox.RuntimeHandler
			}
		}
	}
	subs, err := criconfig.SubPaths(c, spec.Volumes, mount.Vars)
	if err != nil {
		return nil, err
	}
	for _, sub := range subs {
		if mount.SubPaths[sub.Index], err = a.subPath(ctx, p, c, spec.Volumes[sub.Volume], sub); err != nil {
			return nil, err
		}
	}
	if netfile.NeedsHosts(c) && (len(spec.PodIPs) > 0 || p.Spec.HostNetwork) {
		if mount.EtcHosts, err = a.etcHosts(cfg, p, spec.PodIPs); err != nil {
			return nil, err
		}
	}
	return criconfig.Mounts(mount)
}

// subPath asks for a part of a volume. Why it cannot be had is for the log: it
// could tell the pod about the node's files.
func (a *requests) subPath(ctx context.Context, p *v1.Pod, c *v1.Container, v Volume, sub criconfig.SubPath) (string, error) {
	failed := fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", sub.Volume, c.Name)
	if a.deps.Subpaths == nil {
		return "", failed
	}
	path, err := a.deps.Subpaths.Subpath(ctx, SubpathRequest{
		UID: p.UID, Container: c.Name, Volume: sub.Volume, Index: sub.Index, VolumePath: v.HostPath, SubPath: sub.Path, ReadOnly: sub.ReadOnly,
	})
	if err != nil {
		a.log.WarnContext(ctx, "subPath not prepared", "pod", pod.FullName(p), "container", c.Name, "volume", sub.Volume, "error", err.Error())
		return "", failed
	}
	return path, nil
}

// nodeHosts is the file pods on the node's network start from.
const nodeHosts = "/etc/hosts"

// etcHosts writes the pod's hosts file. It is written in place, for running
// containers have it mounted.
func (a *requests) etcHosts(cfg *kubeletconfig.Config, p *v1.Pod, ips []string) (string, error) {
	var content []byte
	if p.Spec.HostNetwork {
		node, err := os.ReadFile(nodeHosts)
		if err != nil {
			return "", err
		}
		content = netfile.HostsHostNetwork(node, p.Spec.HostAliases)
	} else {
		name, err := netfile.PodHostname(p, cfg.Kubelet.ClusterDomain)
		if err != nil {
			return "", err
		}
		content = netfile.Hosts(ips, name, p.Spec.HostAliases)
	}
	path := a.layout.EtcHosts(p.UID)
	if err := writeShared(path, content); err != nil {
		return "", fmt.Errorf("hosts file: %w", err)
	}
	return path, nil
}
