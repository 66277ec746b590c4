// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// inherited are listening sockets that the process was started with and that another
// process (systemd, or the supervisor) holds open too: while nodeapi restarts, callers
// wait in the socket's queue.
type inherited []*os.File

// backlog is larger than any queue; the kernel makes it somaxconn.
const backlog = 1 << 15

// listener takes the socket of an address, nil if there is none. A socket that was shut
// listens again.
func (i inherited) listener(address string) (net.Listener, error) {
	at := slices.IndexFunc(i, func(file *os.File) bool { return serves(file, address) })
	if at < 0 {
		return nil, nil
	}
	err := control(i[at], func(fd int) error { return unix.Listen(fd, backlog) })
	if err == nil {
		var l net.Listener
		if l, err = net.FileListener(i[at]); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("inherited socket %s: %w", i[at].Name(), err)
}

// shut ends the sockets of all other addresses, for every process that holds them: a
// connection is refused, and does not wait in a queue that no process reads.
func (i inherited) shut(except []string) {
	for _, file := range i {
		if !slices.ContainsFunc(except, func(address string) bool { return serves(file, address) }) {
			// One that does not listen cannot be shut, and need not be.
			_ = control(file, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) })
		}
	}
}

// serves reports whether a socket is bound to an address. One bound to all IPv6 addresses
// serves all IPv4 addresses too, as systemd makes them.
func serves(file *os.File, address string) bool {
	wanted, err := netip.ParseAddrPort(address)
	if err != nil {
		return false
	}
	var at netip.AddrPort
	err = control(file, func(fd int) error {
		name, err := unix.Getsockname(fd)
		switch a := name.(type) {
		case *unix.SockaddrInet4:
			at = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
		case *unix.SockaddrInet6:
			at = netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
		}
		return err
	})
	switch ip := at.Addr(); {
	case err != nil || at.Port() != wanted.Port():
		return false
	case wanted.Addr().IsUnspecified():
		return ip.IsUnspecified() && (ip.Is6() || wanted.Addr().Is4())
	default:
		return ip.Unmap() == wanted.Addr().Unmap()
	}
}

func control(file *os.File, do func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}
