// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	utilsysctl "k8s.io/component-helpers/node/util/sysctl"
)

// safeSysctls are namespaced and have no effect outside the pod; since says which
// kernel first had them namespaced.
var safeSysctls = []struct{ name, since string }{
	{name: "kernel.shm_rmid_forced"},
	{name: "net.ipv4.ip_local_port_range"},
	{name: "net.ipv4.tcp_syncookies"},
	{name: "net.ipv4.ping_group_range"},
	{name: "net.ipv4.ip_unprivileged_port_start"},
	{name: "net.ipv4.ip_local_reserved_ports", since: "3.16"},
	{name: "net.ipv4.tcp_keepalive_time", since: "4.5"},
	{name: "net.ipv4.tcp_keepalive_intvl", since: "4.5"},
	{name: "net.ipv4.tcp_keepalive_probes", since: "4.5"},
	{name: "net.ipv4.tcp_fin_timeout", since: "4.6"},
	{name: "net.ipv4.tcp_rmem", since: "4.15"},
	{name: "net.ipv4.tcp_wmem", since: "4.15"},
}

// SafeSysctls lists the sysctls every pod may set on a kernel of that version; an
// unreadable version leaves those that need one out.
func SafeSysctls(kernel string) []string {
	have, err := version.ParseGeneric(kernel)
	var names []string
	for _, s := range safeSysctls {
		if s.since == "" || (err == nil && have.AtLeast(version.MustParseGeneric(s.since))) {
			names = append(names, s.name)
		}
	}
	return names
}

// SysctlAllowlist says which sysctls a pod may set.
type SysctlAllowlist struct {
	names    map[string]utilsysctl.Namespace
	prefixes map[string]utilsysctl.Namespace
}

// NewSysctlAllowlist takes patterns: names, or prefixes ending in "*". Each must be known
// to belong to a namespace.
func NewSysctlAllowlist(patterns ...string) (*SysctlAllowlist, error) {
	a := &SysctlAllowlist{names: map[string]utilsysctl.Namespace{}, prefixes: map[string]utilsysctl.Namespace{}}
	for _, pattern := range patterns {
		namespace, name, isPrefix := utilsysctl.GetNamespace(pattern)
		if name == "" || (!isPrefix && strings.Contains(name, "*")) {
			return nil, fmt.Errorf("sysctl pattern %q: want a name, or a prefix ending in *", pattern)
		}
		if namespace == utilsysctl.UnknownNamespace {
			return nil, fmt.Errorf("sysctl pattern %q: not known to be namespaced", pattern)
		}
		if isPrefix {
			a.prefixes[name] = namespace
		} else {
			a.names[name] = namespace
		}
	}
	return a, nil
}

// Check returns why a pod may not have its sysctls: the message of a SysctlForbidden
// rejection.
func (a *SysctlAllowlist) Check(p *v1.Pod) error {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range p.Spec.SecurityContext.Sysctls {
		if err := a.check(s.Name, p); err != nil {
			return fmt.Errorf("forbidden sysctl: %w", err)
		}
	}
	return nil
}

func (a *SysctlAllowlist) check(name string, p *v1.Pod) error {
	name = utilsysctl.NormalizeName(name)
	namespace, ok := a.names[name]
	if !ok {
		namespace, ok = a.matchPrefix(name)
	}
	switch {
	case !ok:
		return fmt.Errorf("%q not allowlisted", name)
	case namespace == utilsysctl.IPCNamespace && p.Spec.HostIPC,
		namespace == utilsysctl.NetNamespace && p.Spec.HostNetwork:
		return fmt.Errorf("%q not allowed with host %s enabled", name, namespace)
	}
	return nil
}

func (a *SysctlAllowlist) matchPrefix(name string) (utilsysctl.Namespace, bool) {
	var matching []string
	for prefix := range a.prefixes {
		if strings.HasPrefix(name, prefix) {
			matching = append(matching, prefix)
		}
	}
	if len(matching) == 0 {
		return "", false
	}
	return a.prefixes[slices.Max(matching)], true
}

// Sysctls are the sysctls of a pod's sandbox, names in dotted form.
func Sysctls(p *v1.Pod) map[string]string {
	out := map[string]string{}
	if p.Spec.SecurityContext != nil {
		for _, s := range p.Spec.SecurityContext.Sysctls {
			out[utilsysctl.NormalizeName(s.Name)] = s.Value
		}
	}
	return out
}
