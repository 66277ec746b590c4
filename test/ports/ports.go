// SPDX-License-Identifier: Apache-2.0

// Package ports gives tests TCP ports for servers that are configured with a number.
package ports

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Reserve finds a TCP port at a local address and keeps it: until release is called, the
// kernel gives it neither to a listener on port 0 nor to an outgoing connection, and a
// dial to it is refused as long as no server listens. A server that sets SO_REUSEADDR,
// as Go's do, listens on it, any number of times in turn.
//
// The reservation is a bound socket that does not listen (tcp(7), SO_REUSEADDR in
// socket(7)).
func Reserve(ip string) (port int, release func() error, err error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return 0, nil, err
	}
	var local unix.Sockaddr
	family := unix.AF_INET6
	if addr.Is4() {
		family, local = unix.AF_INET, &unix.SockaddrInet4{Addr: addr.As4()}
	} else {
		local = &unix.SockaddrInet6{Addr: addr.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, fmt.Errorf("socket: %w", err)
	}
	if port, err = bind(fd, local); err != nil {
		_ = unix.Close(fd) // never used
		return 0, nil, fmt.Errorf("a port at %s: %w", ip, err)
	}
	return port, func() error { return unix.Close(fd) }, nil
}

func bind(fd int, local unix.Sockaddr) (int, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, local); err != nil {
		return 0, err
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	switch a := bound.(type) {
	case *unix.SockaddrInet4:
		return a.Port, nil
	case *unix.SockaddrInet6:
		return a.Port, nil
	}
	return 0, fmt.Errorf("bound to %T", bound)
}

// Loopback reserves a port of 127.0.0.1 until the test ends.
func Loopback(t testing.TB) int {
	t.Helper()
	port, release, err := Reserve("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	return port
}
