// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// SecurityOptions are the node's part of a security context.
type SecurityOptions struct {
	// SeccompDefault is KubeletConfiguration.seccompDefault.
	SeccompDefault bool
	// SeccompRoot is the directory Localhost profiles are relative to; empty means that
	// of the default Layout.
	SeccompRoot string
	// ExtraGroups are supplemental groups volumes ask for.
	ExtraGroups []int64
	// UserNamespace is the mapping of a pod with hostUsers: false; nil otherwise.
	UserNamespace *runtimeapi.UserNamespace
	// ExtraMaskedPaths are masked besides the usual ones: the thermal_throttle directory
	// of each CPU the node has.
	ExtraMaskedPaths []string
}

var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// EffectiveSecurityContext is the security context of a container with the fields it
// leaves open taken from the pod. It is never nil and shares nothing with p or c.
func EffectiveSecurityContext(p *v1.Pod, c *v1.Container) *v1.SecurityContext {
	sc := &v1.SecurityContext{}
	if c.SecurityContext != nil {
		sc = c.SecurityContext.DeepCopy()
	}
	psc := p.Spec.SecurityContext
	if psc == nil {
		return sc
	}
	psc = psc.DeepCopy()
	inherit(&sc.SELinuxOptions, psc.SELinuxOptions)
	inherit(&sc.RunAsUser, psc.RunAsUser)
	inherit(&sc.RunAsGroup, psc.RunAsGroup)
	inherit(&sc.RunAsNonRoot, psc.RunAsNonRoot)
	inherit(&sc.SeccompProfile, psc.SeccompProfile)
	inherit(&sc.AppArmorProfile, psc.AppArmorProfile)
	inherit(&sc.WindowsOptions, psc.WindowsOptions)
	return sc
}

func inherit[T any](field **T, from *T) {
	if *field == nil {
		*field = from
	}
}

// SeccompProfile is the profile of a container: its own, else the pod's, else the node's
// default.
func SeccompProfile(p *v1.Pod, c *v1.Container, o SecurityOptions) (*runtimeapi.SecurityProfile, error) {
	profile := EffectiveSecurityContext(p, c).SeccompProfile
	switch {
	case profile == nil && o.SeccompDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case profile == nil:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case profile.Type == v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case profile.Type == v1.SeccompProfileTypeLocalhost:
		if profile.LocalhostProfile == nil || *profile.LocalhostProfile == "" {
			return nil, errors.New("seccompProfile: localhostProfile must be set if type is Localhost")
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: path.Join(cmp.Or(o.SeccompRoot, Layout{}.Seccomp()), *profile.LocalhostProfile),
		}, nil
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
}

// AppArmorProfile is the profile of a container: its own field, else the annotation of
// older manifests, else the pod's field; nil without any. The string is the same in the
// form older runtimes read.
func AppArmorProfile(p *v1.Pod, c *v1.Container) (*runtimeapi.SecurityProfile, string, error) {
	profile := appArmorProfile(p, c)
	if profile == nil {
		return nil, "", nil
	}
	switch profile.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			v1.DeprecatedAppArmorBetaProfileRuntimeDefault, nil
	case v1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			v1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	case v1.AppArmorProfileTypeLocalhost:
		if profile.LocalhostProfile == nil {
			return nil, "", errors.New("appArmorProfile: localhostProfile must be set if type is Localhost")
		}
		name := *profile.LocalhostProfile
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: name},
			v1.DeprecatedAppArmorBetaProfileNamePrefix + name, nil
	}
	return nil, "", fmt.Errorf("appArmorProfile: unknown type %q", profile.Type)
}

func appArmorProfile(p *v1.Pod, c *v1.Container) *v1.AppArmorProfile {
	if sc := c.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return sc.AppArmorProfile
	}
	switch value := p.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; {
	case value == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case value == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	case strings.HasPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix):
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: new(strings.TrimPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix))}
	}
	if psc := p.Spec.SecurityContext; psc != nil {
		return psc.AppArmorProfile
	}
	return nil
}

// NamespaceOptions are the namespaces a pod shares with the node or among its containers.
func NamespaceOptions(p *v1.Pod, o SecurityOptions) *runtimeapi.NamespaceOption {
	out := &runtimeapi.NamespaceOption{
		Network:       runtimeapi.NamespaceMode_POD,
		Ipc:           runtimeapi.NamespaceMode_POD,
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		UsernsOptions: o.UserNamespace,
	}
	if out.UsernsOptions == nil {
		out.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
	}
	if p.Spec.HostNetwork {
		out.Network = runtimeapi.NamespaceMode_NODE
	}
	if p.Spec.HostIPC {
		out.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case p.Spec.HostPID:
		out.Pid = runtimeapi.NamespaceMode_NODE
	case p.Spec.ShareProcessNamespace != nil && *p.Spec.ShareProcessNamespace:
		out.Pid = runtimeapi.NamespaceMode_POD
	}
	return out
}

// SupplementalGroups are fsGroup, the pod's supplementalGroups, and those of its volumes.
func SupplementalGroups(p *v1.Pod, o SecurityOptions) []int64 {
	var groups []int64
	if psc := p.Spec.SecurityContext; psc != nil {
		if psc.FSGroup != nil {
			groups = append(groups, *psc.FSGroup)
		}
		groups = append(groups, psc.SupplementalGroups...)
	}
	return append(groups, o.ExtraGroups...)
}

func groupsPolicy(p *v1.Pod) (runtimeapi.SupplementalGroupsPolicy, error) {
	psc := p.Spec.SecurityContext
	if psc == nil || psc.SupplementalGroupsPolicy == nil {
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	}
	v, ok := runtimeapi.SupplementalGroupsPolicy_value[string(*psc.SupplementalGroupsPolicy)]
	if !ok {
		return 0, fmt.Errorf("securityContext.supplementalGroupsPolicy: unknown value %q", *psc.SupplementalGroupsPolicy)
	}
	return runtimeapi.SupplementalGroupsPolicy(v), nil
}

// ImageUser is who an image says to run as: a uid, or else a name (both unset: root).
type ImageUser struct {
	UID  *int64
	Name string
}

// ContainerSecurity is the CRI security context of a container.
func ContainerSecurity(p *v1.Pod, c *v1.Container, user ImageUser, o SecurityOptions) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := EffectiveSecurityContext(p, c)
	out := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions:   NamespaceOptions(p, o),
		SupplementalGroups: SupplementalGroups(p, o),
		SelinuxOptions:     selinux(sc.SELinuxOptions),
		Privileged:         ptr.Deref(sc.Privileged, false),
		ReadonlyRootfs:     ptr.Deref(sc.ReadOnlyRootFilesystem, false),
		NoNewPrivs:         sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
	}
	if caps := sc.Capabilities; caps != nil {
		out.Capabilities = &runtimeapi.Capability{}
		for _, v := range caps.Add {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(v))
		}
		for _, v := range caps.Drop {
			out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(v))
		}
	}
	if sc.RunAsGroup != nil {
		out.RunAsGroup = &runtimeapi.Int64Value{Value: *sc.RunAsGroup}
	}
	switch {
	case sc.RunAsUser != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *sc.RunAsUser}
	case user.UID != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *user.UID}
	default:
		out.RunAsUsername = user.Name
	}
	if sc.ProcMount == nil || *sc.ProcMount != v1.UnmaskedProcMount {
		out.MaskedPaths = append(append(out.MaskedPaths, maskedPaths...), o.ExtraMaskedPaths...)
		out.ReadonlyPaths = append(out.ReadonlyPaths, readonlyPaths...)
	}
	var err error
	if out.Seccomp, err = SeccompProfile(p, c, o); err != nil {
		return nil, err
	}
	if out.Apparmor, out.ApparmorProfile, err = AppArmorProfile(p, c); err != nil {
		return nil, err
	}
	if out.SupplementalGroupsPolicy, err = groupsPolicy(p); err != nil {
		return nil, err
	}
	return out, nil
}

// SandboxSecurity is the CRI security context of a pod's sandbox. Its seccomp profile is
// always the runtime's default, so that a tight profile of the pod need not allow what
// the pause process does.
func SandboxSecurity(p *v1.Pod, o SecurityOptions) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	out := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions:   NamespaceOptions(p, o),
		SupplementalGroups: SupplementalGroups(p, o),
		Privileged:         HasPrivileged(p),
		Seccomp:            &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	if psc := p.Spec.SecurityContext; psc != nil {
		out.SelinuxOptions = selinux(psc.SELinuxOptions)
		if psc.RunAsUser != nil {
			out.RunAsUser = &runtimeapi.Int64Value{Value: *psc.RunAsUser}
		}
		if psc.RunAsGroup != nil {
			out.RunAsGroup = &runtimeapi.Int64Value{Value: *psc.RunAsGroup}
		}
	}
	var err error
	out.SupplementalGroupsPolicy, err = groupsPolicy(p)
	return out, err
}

// HasPrivileged reports whether any container of the pod is privileged.
func HasPrivileged(p *v1.Pod) bool {
	for _, c := range Containers(p) {
		if c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false) {
			return true
		}
	}
	return false
}

// VerifyNonRoot checks runAsNonRoot against who the container would run as. The error is
// worded as pod owners know it and belongs to CreateContainerConfigError.
func VerifyNonRoot(p *v1.Pod, c *v1.Container, user ImageUser) error {
	sc := EffectiveSecurityContext(p, c)
	if !ptr.Deref(sc.RunAsNonRoot, false) {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", String(p), c.Name)
	switch {
	case sc.RunAsUser != nil:
		if *sc.RunAsUser == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
		}
	case user.UID != nil:
		if *user.UID == 0 {
			return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
		}
		if *user.UID < 0 || *user.UID > math.MaxInt32 {
			return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d) %s", *user.UID, where)
		}
	case user.Name != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", user.Name, where)
	}
	return nil
}

func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}
