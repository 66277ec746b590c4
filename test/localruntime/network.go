// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// reserveNetwork makes sure the bridge exists with the gateway address of the
// pod range, so that the range counts as taken from now on, before the first pod
// asks the CNI plugin for it. It returns the range in use.
//
// Two callers that choose at the same moment may choose the same range: each
// looks again afterwards, and the one with the younger interface moves on.
func (c Config) reserveNetwork() (string, error) {
	subnet := c.Subnet
	for {
		if subnet == "" {
			used, err := usedPrefixes(c.Bridge)
			if err != nil {
				return "", err
			}
			if subnet, err = pickSubnet(used); err != nil {
				return "", err
			}
		}
		prefix, err := netip.ParsePrefix(subnet)
		if err != nil {
			return "", fmt.Errorf("pod network: %w", err)
		}
		index, err := ensureBridge(c.Bridge, prefix)
		if err != nil {
			return "", err
		}
		older, err := overlappingOlder(index, prefix)
		if err != nil {
			return "", err
		}
		if older == "" {
			return subnet, nil
		}
		if c.Subnet != "" {
			return "", errors.Join(fmt.Errorf("invalid Subnet: %s is already used by interface %s", subnet, older), deleteLink(c.Bridge))
		}
		if err := deleteLink(c.Bridge); err != nil {
			return "", err
		}
		subnet = ""
	}
}

// ensureBridge creates the bridge if it is missing, brings it up with the first
// address of the range and returns its index.
func ensureBridge(name string, subnet netip.Prefix) (int, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			return 0, fmt.Errorf("create bridge %s: %w", name, err)
		}
		link, err = netlink.LinkByName(name)
	}
	if err != nil {
		return 0, fmt.Errorf("find bridge %s: %w", name, err)
	}
	if link.Type() != "bridge" {
		return 0, fmt.Errorf("invalid Bridge: interface %s exists and is a %s", name, link.Type())
	}
	gateway := &netlink.Addr{IPNet: &net.IPNet{
		IP:   subnet.Masked().Addr().Next().AsSlice(),
		Mask: net.CIDRMask(subnet.Bits(), 32),
	}}
	if err := netlink.AddrReplace(link, gateway); err != nil {
		return 0, fmt.Errorf("address bridge %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return 0, fmt.Errorf("bring up bridge %s: %w", name, err)
	}
	return link.Attrs().Index, nil
}

// overlappingOlder names an interface with a lower index than ours that has an
// address in the same range, or "".
func overlappingOlder(index int, p netip.Prefix) (string, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range ifs {
		if i.Index >= index {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // gone since it was listed
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok || n.IP.To4() == nil {
				continue
			}
			addr, _ := netip.AddrFromSlice(n.IP.To4())
			ones, _ := n.Mask.Size()
			if netip.PrefixFrom(addr, ones).Masked().Overlaps(p) {
				return i.Name, nil
			}
		}
	}
	return "", nil
}

// deleteLink removes an interface; one that is not there is no error.
func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) { // the kernel removes those of a namespace that ends
		return fmt.Errorf("delete interface %s: %w", name, err)
	}
	return nil
}

// deleteBridge removes the bridge together with the host ends of the pod
// interfaces on it.
func deleteBridge(name string) error {
	bridge, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", name, err)
	}
	links, err := whole(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		if l.Attrs().MasterIndex == bridge.Attrs().Index {
			errs = append(errs, deleteLink(l.Attrs().Name))
		}
	}
	return errors.Join(append(errs, deleteLink(name))...)
}

// whole lists again what the kernel listed while it changed: others make and remove
// interfaces all the time.
func whole[T any](list func() ([]T, error)) (all []T, err error) {
	for range 20 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
