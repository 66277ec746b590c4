// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod/env"
)

// Volume is what lies behind one name of pod.spec.volumes.
type Volume struct {
	// HostPath is the directory, the file or, with Block, the device.
	HostPath string
	// Image is what an image volume holds; nil for every other one.
	Image *runtimeapi.ImageSpec
	Block bool
	// ReadOnly is forced on every mount of it.
	ReadOnly bool
	// Relabel has the runtime give its files the container's label, on a node with
	// SELinux.
	Relabel bool
}

// SubPath is a volumeMounts[].subPath to be prepared before the container is
// configured.
type SubPath struct {
	// Index in volumeMounts.
	Index  int
	Volume string
	// Path is relative, expanded, and does not lead upwards.
	Path     string
	ReadOnly bool
}

// SubPaths lists the parts of volumes a container mounts. Those of image volumes
// are the runtime's business and not listed. Vars are the container's, by name.
func SubPaths(c *v1.Container, volumes map[string]Volume, vars map[string]string) ([]SubPath, error) {
	var out []SubPath
	for i, m := range c.VolumeMounts {
		sub, err := subPath(m, vars)
		if err != nil {
			return nil, err
		}
		if v, ok := volumes[m.Name]; sub == "" || !ok || v.Image != nil {
			continue
		}
		out = append(out, SubPath{Index: i, Volume: m.Name, Path: sub, ReadOnly: m.ReadOnly})
	}
	return out, nil
}

// maxPath is PATH_MAX of Linux, which takes no longer path, in bytes.
const maxPath = 4096

// subPath expands subPathExpr: a reference to a variable that is not there, or empty, is
// an error, as by the kubelet.
func subPath(m v1.VolumeMount, vars map[string]string) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		missing := sets.New[string]()
		var err error
		sub, err = env.Expand(m.SubPathExpr, maxPath, func(name string) (string, bool) {
			if vars[name] == "" {
				missing.Insert(name)
			}
			return vars[name], true
		})
		switch {
		case len(missing) > 0:
			return "", fmt.Errorf("missing value for %s", strings.Join(sets.List(missing), ", "))
		case err != nil:
			return "", fmt.Errorf("subPathExpr of volumeMount %q: %w", m.Name, err)
		}
	}
	switch {
	case strings.HasPrefix(sub, "/"):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	case slices.Contains(strings.Split(sub, "/"), ".."):
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	return sub, nil
}

// MountInput is everything the mounts of a container depend on.
type MountInput struct {
	Container *v1.Container
	// Vars of the container by name, for subPathExpr.
	Vars    map[string]string
	Volumes map[string]Volume
	// SubPaths holds the host path of each SubPath by its index.
	SubPaths map[int]string
	// RecursiveReadOnly is whether the runtime handler can do it.
	RecursiveReadOnly bool
	// EtcHosts and TerminationLog are host files; empty for none.
	EtcHosts, TerminationLog string
	// SELinux is whether the node enforces labels.
	SELinux bool
	// More are mounts device plugins ask for; they come first.
	More []*runtimeapi.Mount
	// UserNamespace maps the ids of a pod with hostUsers: false.
	UserNamespace *runtimeapi.UserNamespace
}

// Mounts are the mounts of a container, in the kubelet's order.
func Mounts(in MountInput) ([]*runtimeapi.Mount, error) {
	out := slices.Clone(in.More)
	for i, m := range in.Container.VolumeMounts {
		mount, err := in.volumeMount(i, m)
		if err != nil {
			return nil, err
		}
		out = append(out, mount)
	}
	if in.EtcHosts != "" {
		out = append(out, &runtimeapi.Mount{ContainerPath: "/etc/hosts", HostPath: in.EtcHosts, SelinuxRelabel: in.SELinux})
	}
	if in.TerminationLog != "" && in.Container.TerminationMessagePath != "" {
		out = append(out, &runtimeapi.Mount{
			ContainerPath: absolute(in.Container.TerminationMessagePath), HostPath: in.TerminationLog, SelinuxRelabel: in.SELinux,
		})
	}
	if ns := in.UserNamespace; ns != nil && ns.Mode == runtimeapi.NamespaceMode_POD {
		for _, m := range out {
			m.UidMappings, m.GidMappings = ns.Uids, ns.Gids
		}
	}
	return out, nil
}

func (in MountInput) volumeMount(i int, m v1.VolumeMount) (*runtimeapi.Mount, error) {
	v, ok := in.Volumes[m.Name]
	if !ok || v.Block {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, in.Container.Name)
	}
	sub, err := subPath(m, in.Vars)
	if err != nil {
		return nil, err
	}
	mode, err := propagation(m.MountPropagation)
	if err != nil {
		return nil, err
	}
	recursive, err := recursiveReadOnly(m, in.RecursiveReadOnly)
	if err != nil {
		return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	out := &runtimeapi.Mount{
		ContainerPath: absolute(m.MountPath), HostPath: v.HostPath,
		Readonly: m.ReadOnly || v.ReadOnly, RecursiveReadOnly: recursive,
		Propagation: mode, SelinuxRelabel: v.Relabel && in.SELinux,
	}
	switch {
	case v.Image != nil:
		out.HostPath, out.Image, out.ImageSubPath = "", v.Image, sub
		out.Readonly = true
	case sub != "":
		if out.HostPath, ok = in.SubPaths[i]; !ok {
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", m.Name, in.Container.Name)
		}
	}
	return out, nil
}

func absolute(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return path.Join("/", p)
}

func propagation(mode *v1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	if mode == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *mode {
	case v1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("invalid MountPropagation mode: %q", *mode)
}

// recursiveReadOnly resolves recursiveReadOnly (KEP-3857).
func recursiveReadOnly(m v1.VolumeMount, can bool) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !m.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", m.Name)
	}
	if m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", m.Name, *m.MountPropagation)
	}
	switch mode := *m.RecursiveReadOnly; mode {
	case v1.RecursiveReadOnlyIfPossible:
		return can, nil
	case v1.RecursiveReadOnlyEnabled:
		if !can {
			return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", m.Name)
		}
		return true, nil
	default:
		return false, fmt.Errorf("unknown recursive read-only mode %q", mode)
	}
}

// Devices are the block volumes of a container.
func Devices(c *v1.Container, volumes map[string]Volume) ([]*runtimeapi.Device, error) {
	var out []*runtimeapi.Device
	for _, d := range c.VolumeDevices {
		if !path.IsAbs(d.DevicePath) {
			return nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", d.DevicePath)
		}
		v, ok := volumes[d.Name]
		if !ok || !v.Block {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", d.Name, c.Name)
		}
		if v.HostPath == "" {
			return nil, fmt.Errorf("volume %q has no device", d.Name)
		}
		permissions := "mrw"
		if v.ReadOnly {
			permissions = "r"
		}
		out = append(out, &runtimeapi.Device{HostPath: v.HostPath, ContainerPath: d.DevicePath, Permissions: permissions})
	}
	return out, nil
}
