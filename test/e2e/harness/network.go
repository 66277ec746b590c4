// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// network is the interface that carries the nodes' addresses: a bridge without
// ports, because a node's address must not be a loopback one.
type network struct {
	name string

	mu    sync.Mutex
	link  netlink.Link
	last  netip.Addr
	last6 netip.Addr
}

func newNetwork(labID string) *network { return &network{name: labID + "n"} }

// address hands out an address of a family that nobody else has.
func (n *network) address(family corev1.IPFamily) (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.link == nil {
		if err := n.create(); err != nil {
			return netip.Addr{}, err
		}
	}
	last := &n.last
	if family == corev1.IPv6Protocol {
		last = &n.last6
	}
	*last = last.Next()
	bits := last.BitLen()
	// At once, without a look whether another machine has it.
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: last.AsSlice(), Mask: net.CIDRMask(bits, bits)}, Flags: unix.IFA_F_NODAD}
	if err := netlink.AddrAdd(n.link, addr); err != nil {
		return netip.Addr{}, fmt.Errorf("add node address %s: %w", *last, err)
	}
	return *last, nil
}

func (n *network) create() error {
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: n.name}}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("create %s: %w", n.name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up %s: %w", n.name, err)
	}
	// The index of the interface is unique while it lives, and so is the range.
	i := link.Attrs().Index
	n.link = link
	n.last = netip.AddrFrom4([4]byte{10, byte(128 + i>>8&0x7f), byte(i), 0})
	n.last6 = netip.AddrFrom16([16]byte{0: 0xfd, 1: 's', 2: 'x', 3: 'n', 4: byte(i >> 8), 5: byte(i)})
	return nil
}

func (n *network) remove() error { return deleteLink(n.name) }

func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) { // the kernel removes those of a namespace that ends
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}
