// SPDX-License-Identifier: Apache-2.0

package ports_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/test/ports"
)

// TestReserved: where the kernel has two ports to give in all and one is reserved, it
// gives the other to listeners, and to connections too; servers listen on the reserved
// one in turn, and between them a dial is refused.
func TestReserved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	network(t)
	port, release, err := ports.Reserve("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	reserved := fmt.Sprintf("127.0.0.1:%d", port)
	for range 2 {
		if conn, err := net.Dial("tcp", reserved); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a dial without a server: %v, %v", conn, err)
		}
		server, err := net.Listen("tcp", reserved)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", reserved)
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.LocalAddr().(*net.TCPAddr).Port; got == port {
			t.Errorf("the connection comes from port %d, which is reserved", got)
		}
		if err := errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close(), server.Close()); err != nil {
			t.Fatal(err)
		}
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if got := other.Addr().(*net.TCPAddr).Port; got == port {
		t.Errorf("a listener got port %d, which is reserved", got)
	}
	if more, err := net.Listen("tcp", "127.0.0.1:0"); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a third port: %v, %v", more, err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if free, err := net.Listen("tcp", "127.0.0.1:0"); err != nil || free.Addr().String() != reserved {
		t.Errorf("after the release: %v, %v", free, err)
	}
}

// network puts the test's thread, which ends with it, into a network of its own, with a
// loopback and two ports to give.
func network(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // for good
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was sent
	up, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	up.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		t.Fatal(err)
	}
	// The kernel shows each thread the settings of its own network.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40001"), 0o644); err != nil {
		t.Fatal(err)
	}
}
