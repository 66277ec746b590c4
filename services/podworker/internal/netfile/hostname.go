// SPDX-License-Identifier: Apache-2.0

package netfile

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of the kernel's node name, without the terminating zero.
const (
	maxHostname = 63
	maxFQDN     = 64
)

// Hostname is how a pod is called.
type Hostname struct {
	// Host is the first label, or all of spec.hostnameOverride.
	Host string
	// Domain is <subdomain>.<namespace>.svc.<cluster domain>; empty without a subdomain.
	Domain string
}

// PodHostname names a pod: hostnameOverride, else spec.hostname, else the pod's name, cut
// to 63 bytes. An override has no domain (KEP-4762).
func PodHostname(p *v1.Pod, clusterDomain string) (Hostname, error) {
	if o := p.Spec.HostnameOverride; o != nil {
		if problems := validation.IsDNS1123Subdomain(*o); len(problems) > 0 {
			return Hostname{}, fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", *o, strings.Join(problems, ";"))
		}
		host, err := truncate(p.Name, *o)
		return Hostname{Host: host}, err
	}
	host := p.Name
	if p.Spec.Hostname != "" {
		if problems := validation.IsDNS1123Label(p.Spec.Hostname); len(problems) > 0 {
			return Hostname{}, fmt.Errorf("pod Hostname %q is not a valid DNS label: %s", p.Spec.Hostname, strings.Join(problems, ";"))
		}
		host = p.Spec.Hostname
	}
	host, err := truncate(p.Name, host)
	if err != nil {
		return Hostname{}, err
	}
	out := Hostname{Host: host}
	if p.Spec.Subdomain != "" {
		if problems := validation.IsDNS1123Label(p.Spec.Subdomain); len(problems) > 0 {
			return Hostname{}, fmt.Errorf("pod Subdomain %q is not a valid DNS label: %s", p.Spec.Subdomain, strings.Join(problems, ";"))
		}
		out.Domain = fmt.Sprintf("%s.%s.svc.%s", p.Spec.Subdomain, p.Namespace, clusterDomain)
	}
	return out, nil
}

func truncate(podName, host string) (string, error) {
	if len(host) <= maxHostname {
		return host, nil
	}
	cut := strings.TrimRight(host[:maxHostname], "-.")
	if cut == "" {
		return "", fmt.Errorf("hostname for pod %q was invalid: %q", podName, host)
	}
	return cut, nil
}

// Kernel is what the sandbox's node name is set to: the host, or with
// setHostnameAsFQDN the fully qualified name, which must fit into 64 bytes.
func (h Hostname) Kernel(setHostnameAsFQDN *bool) (string, error) {
	if h.Domain == "" || setHostnameAsFQDN == nil || !*setHostnameAsFQDN {
		return h.Host, nil
	}
	fqdn := h.Host + "." + h.Domain
	if len(fqdn) > maxFQDN {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)", fqdn, maxFQDN, len(fqdn))
	}
	return fqdn, nil
}
