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
)

// network is the interface that carries the nodes' addresses: a bridge without
// ports, because a node's address must not be a loopback one.
type network struct {
	name string

	mu   sync.Mutex
	link netlink.Link
	last netip.Addr
}

func newNetwork(labID string) *network { return &network{name: labID + "n"} }

// address hands out an address that nobody else has.
func (n *network) address() (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.link == nil {
		if err := n.create(); err != nil {
			return netip.Addr{}, err
		}
	}
	n.last = n.last.Next()
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: n.last.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrAdd(n.link, addr); err != nil {
		return netip.Addr{}, fmt.Errorf("add node address %s: %w", n.last, err)
	}
	return n.last, nil
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
