// SPDX-License-Identifier: Apache-2.0

package netfile

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Limits of a resolv.conf the node makes.
const (
	MaxNameservers     = 3
	MaxSearchPaths     = 32
	MaxSearchListChars = 2048
	// MaxResolvConf is how much of the node's file is read, in bytes.
	MaxResolvConf = 10 << 20
)

// DNSInput is the node's part of a pod's DNS settings.
type DNSInput struct {
	// ClusterDNS and ClusterDomain are KubeletConfiguration's.
	ClusterDNS    []string
	ClusterDomain string
	// Resolv is the node's resolv.conf; nil when KubeletConfiguration.resolvConf is
	// empty.
	Resolv *Resolv
	// NodeIPs decide which loopback address stands in without a resolv.conf.
	NodeIPs []string
}

// Warning is something the pod's owner should know; it becomes an event.
type Warning struct {
	// Reason of the event: DNSConfigForming, MissingClusterDNS, CheckLimitsForResolvConf.
	Reason string
	// Message of the pod's event; without one there is none.
	Message string
	// Node is true when the node gets an event too, with NodeMessage.
	Node        bool
	NodeMessage string
}

// Resolv is a parsed resolv.conf.
type Resolv struct {
	Nameservers, Searches, Options []string
}

// ParseResolv reads a resolv.conf: nameservers add up, the last search line wins, and so
// does the last setting of each option. An option without a name is left out.
func ParseResolv(content []byte) (Resolv, error) {
	if len(content) > MaxResolvConf {
		return Resolv{}, fmt.Errorf("resolv.conf: more than %d bytes", MaxResolvConf)
	}
	var r Resolv
	var failed error
	var options optionList
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) < 2 {
				failed = errors.Join(failed, errors.New("resolv.conf: nameserver list is empty"))
				continue
			}
			r.Nameservers = append(r.Nameservers, fields[1])
		case "search":
			r.Searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					r.Searches = append(r.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, o := range fields[1:] {
				options.setText(o)
			}
		}
	}
	r.Options = options.strings()
	return r, failed
}

// optionList keeps the last value of each option, in the order of first mention.
type optionList struct {
	names  []string
	values map[string]string
}

// setText sets what a resolv.conf calls name[:value].
func (l *optionList) setText(option string) {
	if name, value, _ := strings.Cut(option, ":"); name != "" {
		l.set(name, value)
	}
}

func (l *optionList) set(name, value string) {
	if l.values == nil {
		l.values = map[string]string{}
	}
	if _, ok := l.values[name]; !ok {
		l.names = append(l.names, name)
	}
	l.values[name] = value
}

func (l *optionList) strings() []string {
	var out []string
	for _, name := range l.names {
		if value := l.values[name]; value != "" {
			name += ":" + value
		}
		out = append(out, name)
	}
	return out
}

// DNS is the DNS configuration of a pod's sandbox. ClusterFirst asks the cluster's
// servers, unless there are none or the pod is on the node's network: it is Default
// then, the node's settings. None is what the pod says itself. dnsConfig is added to
// each, without repeating. What exceeds the limits is left out, with a warning.
func DNS(p *v1.Pod, in DNSInput) (*runtimeapi.DNSConfig, []Warning) {
	var warnings []Warning
	out := &runtimeapi.DNSConfig{}
	if in.Resolv != nil {
		out.Servers = slices.Clone(in.Resolv.Nameservers)
		out.Searches = slices.Clone(in.Resolv.Searches)
		out.Options = slices.Clone(in.Resolv.Options)
	}
	policy := p.Spec.DNSPolicy
	switch {
	case policy == v1.DNSNone:
		out = &runtimeapi.DNSConfig{}
	case policy == v1.DNSDefault, policy == v1.DNSClusterFirst && p.Spec.HostNetwork:
		in.nodeDefault(out)
	case len(in.ClusterDNS) == 0:
		warnings = append(warnings, missingClusterDNS(p))
		in.nodeDefault(out)
	default:
		out.Servers = slices.Clone(in.ClusterDNS)
		if in.ClusterDomain != "" {
			out.Searches = unique(append([]string{
				p.Namespace + ".svc." + in.ClusterDomain, "svc." + in.ClusterDomain, in.ClusterDomain,
			}, out.Searches...))
		}
		out.Options = []string{"ndots:5"}
	}
	if c := p.Spec.DNSConfig; c != nil {
		out.Servers = unique(append(out.Servers, c.Nameservers...))
		out.Searches = unique(append(out.Searches, c.Searches...))
		out.Options = mergeOptions(out.Options, c.Options)
	}
	return out, append(warnings, limit(out)...)
}

// nodeDefault completes the node's own settings: without a resolv.conf, look-ups go to
// the loopback address, which fails them at once.
func (in DNSInput) nodeDefault(out *runtimeapi.DNSConfig) {
	if in.Resolv != nil {
		return
	}
	for _, ip := range in.NodeIPs {
		if a, err := netip.ParseAddr(ip); err == nil && a.Unmap().Is6() {
			out.Servers = append(out.Servers, "::1")
		} else {
			out.Servers = append(out.Servers, "127.0.0.1")
		}
	}
	if len(out.Servers) == 0 {
		out.Servers = []string{"127.0.0.1"}
	}
	out.Searches = []string{"."}
}

func missingClusterDNS(p *v1.Pod) Warning {
	message := fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.", v1.DNSClusterFirst, v1.DNSDefault)
	return Warning{
		Reason: "MissingClusterDNS", Node: true, NodeMessage: message,
		Message: fmt.Sprintf("pod: %q. %s", pod.String(p), message),
	}
}

func mergeOptions(existing []string, more []v1.PodDNSConfigOption) []string {
	var l optionList
	for _, o := range existing {
		l.setText(o)
	}
	for _, o := range more {
		l.set(o.Name, ptr.Deref(o.Value, ""))
	}
	return l.strings()
}

// limit cuts a configuration to what resolvers read.
func limit(c *runtimeapi.DNSConfig) []Warning {
	var warnings []Warning
	if len(c.Servers) > MaxNameservers {
		c.Servers = c.Servers[:MaxNameservers]
		warnings = append(warnings, Warning{Reason: "DNSConfigForming", Message: fmt.Sprintf(
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: %s", strings.Join(c.Servers, " "))})
	}
	kept := make([]string, 0, len(c.Searches))
	length := 0
	for _, s := range c.Searches {
		if len(s) > validation.DNS1123SubdomainMaxLength {
			continue
		}
		grown := length + len(s)
		if length > 0 {
			grown++
		}
		if len(kept) == MaxSearchPaths || grown > MaxSearchListChars {
			break
		}
		kept, length = append(kept, s), grown
	}
	if len(kept) < len(c.Searches) {
		c.Searches = kept
		warnings = append(warnings, Warning{Reason: "DNSConfigForming", Message: fmt.Sprintf(
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: %s", strings.Join(kept, " "))})
	}
	return warnings
}

// CheckResolv says what of the node's resolv.conf will not fit into a pod's: the message
// of a CheckLimitsForResolvConf event on the node, "" when all fits.
func CheckResolv(file string, r Resolv, clusterDomain string) string {
	paths := MaxSearchPaths
	if clusterDomain != "" {
		paths -= 3
	}
	if len(r.Searches) > paths {
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", file, paths)
	}
	for _, s := range r.Searches {
		if len(s) > validation.DNS1123SubdomainMaxLength {
			return fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than allowed %d chars!", file, validation.DNS1123SubdomainMaxLength)
		}
	}
	if len(strings.Join(r.Searches, " ")) > MaxSearchListChars {
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!", file, MaxSearchListChars)
	}
	return ""
}

func unique(list []string) []string {
	seen := make(map[string]bool, len(list))
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool {
		if seen[s] {
			return true
		}
		seen[s] = true
		return false
	})
}
