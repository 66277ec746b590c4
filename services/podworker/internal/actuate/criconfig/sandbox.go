// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/netfile"
)

// SandboxInput is everything a sandbox's configuration depends on.
type SandboxInput struct {
	Pod     *v1.Pod
	Attempt uint32
	// CgroupParent as the runtime takes it.
	CgroupParent string
	// LogDir is the pod's log directory.
	LogDir        string
	ClusterDomain string
	DNS           *runtimeapi.DNSConfig
	Security      pod.SecurityOptions
	Resources     pod.ResourceOptions
}

// Sandbox is the configuration of a pod's sandbox.
func Sandbox(in SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	p := in.Pod
	security, err := pod.SandboxSecurity(p, in.Security)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: in.Attempt,
		},
		LogDirectory: in.LogDir,
		DnsConfig:    in.DNS,
		PortMappings: portMappings(p),
		Labels:       pod.SandboxLabels(p),
		Annotations:  pod.SandboxAnnotations(p),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    in.CgroupParent,
			SecurityContext: security,
			Sysctls:         pod.Sysctls(p),
		},
	}
	if !p.Spec.HostNetwork {
		name, err := netfile.PodHostname(p, in.ClusterDomain)
		if err != nil {
			return nil, err
		}
		if out.Hostname, err = name.Kernel(p.Spec.SetHostnameAsFQDN); err != nil {
			return nil, err
		}
	}
	out.Linux.Resources, out.Linux.Overhead = pod.SandboxResources(p, in.Resources)
	return out, nil
}

// portMappings are the ports of the regular containers. A name is used once in
// a container; ports without one are told apart by their numbers.
func portMappings(p *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for _, c := range p.Spec.Containers {
		seen := map[string]bool{}
		for _, port := range c.Ports {
			name := port.Name
			if name == "" {
				name = fmt.Sprintf("%s-%s-%s:%d:%d", family(port.HostIP), port.Protocol, port.HostIP, port.ContainerPort, port.HostPort)
			}
			if seen[name] {
				continue
			}
			seen[name] = true
			out = append(out, &runtimeapi.PortMapping{
				Protocol:      protocol(port.Protocol),
				ContainerPort: port.ContainerPort,
				HostPort:      port.HostPort,
				HostIp:        port.HostIP,
			})
		}
	}
	return out
}

func family(ip string) string {
	switch addr, err := netip.ParseAddr(ip); {
	case err != nil:
		return "any"
	case addr.Unmap().Is4():
		return "v4"
	}
	return "v6"
}

func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	}
	return runtimeapi.Protocol_TCP
}
