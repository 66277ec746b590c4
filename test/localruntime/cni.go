// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// renderCNI writes the pod network: a bridge with addresses handed out from one
// range of each family, and host ports. Addresses are not masqueraded: the range stays on the
// machine.
func renderCNI(network, bridge string, subnets []string, dataDir string) ([]byte, error) {
	type object map[string]any
	var ranges [][]object
	for _, s := range subnets {
		ranges = append(ranges, []object{{"subnet": s}})
	}
	list := object{
		"cniVersion": "0.4.0",
		"name":       network,
		"plugins": []object{
			{
				"type":             "bridge",
				"bridge":           bridge,
				"isGateway":        true,
				"isDefaultGateway": true,
				"ipMasq":           false,
				"hairpinMode":      true,
				"ipam": object{
					"type":    "host-local",
					"dataDir": dataDir,
					"ranges":  ranges,
				},
			},
			{
				"type":         "portmap",
				"backend":      "iptables",
				"capabilities": object{"portMappings": true},
			},
		},
	}
	b, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("render CNI network: %w", err)
	}
	return append(b, '\n'), nil
}

// ranges are those of the families, given that of IPv4. That of IPv6 is a unique local one
// (RFC 4193) that ends with the other, which nobody else has on the machine.
func (f Families) ranges(subnet string) ([]string, error) {
	p, err := netip.ParsePrefix(subnet)
	if err != nil {
		return nil, fmt.Errorf("pod network: %w", err)
	}
	v6 := [16]byte{0: 0xfd, 1: 's', 2: 'x', 3: 't'}
	v4 := p.Masked().Addr().As4()
	copy(v6[4:], v4[:])
	second := netip.PrefixFrom(netip.AddrFrom16(v6), 64).String()
	switch f {
	case IPv4:
		return []string{subnet}, nil
	case DualStack:
		return []string{subnet, second}, nil
	case IPv6:
		return []string{second}, nil
	}
	return nil, fmt.Errorf("invalid Families: %q", f)
}

// pickSubnet returns the first 10.x.0.0/16 from 10.88 on that overlaps nothing
// in taken.
func pickSubnet(taken []netip.Prefix) (string, error) {
	for second := 88; second < 128; second++ {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(second), 0, 0}), 16)
		if !overlapsAny(p, taken) {
			return p.String(), nil
		}
	}
	return "", fmt.Errorf("pod network: every range from 10.88.0.0/16 to 10.127.0.0/16 is in use")
}

func overlapsAny(p netip.Prefix, taken []netip.Prefix) bool {
	for _, t := range taken {
		if p.Overlaps(t) {
			return true
		}
	}
	return false
}

// usedPrefixes lists the IPv4 ranges that the machine's routes name, the default
// route and the routes of the interface `except` aside.
func usedPrefixes(except string) ([]netip.Prefix, error) {
	routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	own := -1
	if l, err := netlink.LinkByName(except); err == nil {
		own = l.Attrs().Index
	}
	var used []netip.Prefix
	for _, r := range routes {
		if r.Dst == nil || r.LinkIndex == own {
			continue
		}
		addr, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		ones, _ := r.Dst.Mask.Size()
		if ok && ones > 0 {
			used = append(used, netip.PrefixFrom(addr, ones).Masked())
		}
	}
	return used, nil
}

func (c Config) writeCNI(subnet string) error {
	subnets, err := c.Families.ranges(subnet)
	if err != nil {
		return err
	}
	b, err := renderCNI(c.networkName(), c.Bridge, subnets, c.cniDataDir())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.cniConfDir(), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.cniConfDir(), "10-sextant.conflist"), b, 0o644)
}
