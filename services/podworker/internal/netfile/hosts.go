// SPDX-License-Identifier: Apache-2.0

package netfile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// First lines of a hosts file the node manages.
const (
	HostsHeader            = "# Kubernetes-managed hosts file.\n"
	HostsHeaderHostNetwork = "# Kubernetes-managed hosts file (host network).\n"
)

const localEntries = "127.0.0.1\tlocalhost\n" +
	"::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"fe00::0\tip6-localnet\n" +
	"fe00::0\tip6-mcastprefix\n" +
	"fe00::1\tip6-allnodes\n" +
	"fe00::2\tip6-allrouters\n"

// Hosts is /etc/hosts of a pod with a network of its own: one line for each of its
// addresses, with the fully qualified name first when the pod has a domain.
func Hosts(podIPs []string, name Hostname, aliases []v1.HostAlias) []byte {
	var b bytes.Buffer
	b.WriteString(HostsHeader + localEntries)
	for _, ip := range podIPs {
		if name.Domain != "" {
			fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, name.Host, name.Domain, name.Host)
		} else {
			fmt.Fprintf(&b, "%s\t%s\n", ip, name.Host)
		}
	}
	writeAliases(&b, aliases)
	return b.Bytes()
}

// HostsHostNetwork is /etc/hosts of a pod on the node's network: the node's own file and
// the pod's aliases.
func HostsHostNetwork(nodeHosts []byte, aliases []v1.HostAlias) []byte {
	var b bytes.Buffer
	b.WriteString(HostsHeaderHostNetwork)
	b.Write(nodeHosts)
	writeAliases(&b, aliases)
	return b.Bytes()
}

func writeAliases(b *bytes.Buffer, aliases []v1.HostAlias) {
	if len(aliases) == 0 {
		return
	}
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, a := range aliases {
		fmt.Fprintf(b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
}

// NeedsHosts reports whether the node provides /etc/hosts to a container: not when the
// container mounts something there itself.
func NeedsHosts(c *v1.Container) bool {
	return !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.MountPath == "/etc/hosts" })
}
