// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Host is what the machine says of its addresses.
type Host struct {
	// Interfaces are the addresses of all interfaces.
	Interfaces []netip.Addr
	// Resolved are the addresses the node's name resolves to.
	Resolved []netip.Addr
	// Route4 and Route6 are the addresses on the interface of the default route;
	// invalid for none.
	Route4, Route6 netip.Addr
}

// AddressInput is what decides the addresses of a node.
type AddressInput struct {
	// Hostname is the name of the node.
	Hostname string
	// NodeIPs are those of --node-ip: none, one, or one of each family. "0.0.0.0" and
	// "::" stand for a preferred family.
	NodeIPs []string
	// External: a cloud controller sets the addresses; --node-ip is only what they
	// start with.
	External bool
	// Existing are the addresses the Node object has.
	Existing []v1.NodeAddress
	Host     Host
}

// Addresses are the node's: the internal ones, then the host name. nil means: leave
// what is there. The error says why none could be found.
func Addresses(in AddressInput) ([]v1.NodeAddress, error) {
	given, prefer6, err := parseNodeIPs(in.NodeIPs)
	if err != nil {
		return nil, err
	}
	if in.External && len(in.Existing) > 0 {
		return nil, nil
	}
	if in.External && len(in.NodeIPs) == 0 {
		return []v1.NodeAddress{{Type: v1.NodeHostName, Address: in.Hostname}}, nil
	}
	for _, ip := range given {
		if err := usable(ip, in.Host.Interfaces); err != nil {
			return nil, fmt.Errorf("--node-ip %s: %w", ip, err)
		}
	}
	if len(given) == 0 {
		ip, err := choose(in, prefer6)
		if err != nil {
			return nil, err
		}
		given = []netip.Addr{ip}
	}
	var out []v1.NodeAddress
	for _, ip := range given {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: in.Hostname}), nil
}

func parseNodeIPs(texts []string) (ips []netip.Addr, prefer6 bool, err error) {
	for _, text := range texts {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, false, fmt.Errorf("--node-ip %q: %w", text, err)
		}
		if ip.IsUnspecified() {
			return nil, ip.Is6(), nil
		}
		ips = append(ips, ip.Unmap())
	}
	return ips, false, nil
}

// choose finds an address: the host name if it is one, else what it resolves to if
// this machine has it, else the one of the default route.
func choose(in AddressInput, prefer6 bool) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(in.Hostname); err == nil {
		return ip.Unmap(), nil
	}
	var found netip.Addr
	for _, ip := range in.Host.Resolved {
		ip = ip.Unmap()
		if usable(ip, in.Host.Interfaces) != nil {
			continue
		}
		if ip.Is6() == prefer6 {
			return ip, nil
		}
		if !found.IsValid() {
			found = ip
		}
	}
	if found.IsValid() {
		return found, nil
	}
	routes := []netip.Addr{in.Host.Route4, in.Host.Route6}
	if prefer6 {
		slices.Reverse(routes)
	}
	for _, ip := range routes {
		if ip.IsValid() {
			return ip.Unmap(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no address found for %q: it resolves to none of this machine, and there is no default route; give --node-ip", in.Hostname)
}

// usable reports whether pods and the API server can reach the node there.
func usable(ip netip.Addr, interfaces []netip.Addr) error {
	switch {
	case ip.IsLoopback():
		return fmt.Errorf("is a loopback address")
	case ip.IsMulticast():
		return fmt.Errorf("is a multicast address")
	case ip.IsLinkLocalUnicast():
		return fmt.Errorf("is a link-local address")
	case ip.IsUnspecified():
		return fmt.Errorf("is unspecified")
	}
	for _, have := range interfaces {
		if have.Unmap().WithZone("") == ip {
			return nil
		}
	}
	return fmt.Errorf("is not an address of this machine")
}

// HostIPs are the addresses pods get: the first internal one, then the first of
// the other family; external ones where there is none internal.
func HostIPs(addresses []v1.NodeAddress) []string {
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		var ips []netip.Addr
		for _, a := range addresses {
			ip, err := netip.ParseAddr(a.Address)
			if err != nil || a.Type != kind {
				continue
			}
			if len(ips) == 0 || (len(ips) == 1 && ips[0].Is4() != ip.Is4()) {
				ips = append(ips, ip)
			}
		}
		if len(ips) > 0 {
			texts := make([]string, len(ips))
			for i, ip := range ips {
				texts[i] = ip.String()
			}
			return texts
		}
	}
	return nil
}
