package nodeapi

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// inherited are listening sockets that this process was started with, and that
// somebody else (systemd, or the supervisor) holds open as well: who connects
// while nodeapi is started again waits in the socket's queue.
type inherited struct {
	mu    sync.Mutex
	files []*os.File
}

// backlog is the longest queue there can be; the kernel makes it somaxconn.
const backlog = 1 << 15

// listener takes the socket of an address. A socket that was given up listens
// again. Without one, ok is false.
func (i *inherited) listener(address string) (l net.Listener, ok bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, file := range i.files {
		if !serves(file, address) {
			continue
		}
		if err := control(file, func(fd int) error { return unix.Listen(fd, backlog) }); err != nil {
			return nil, false, fmt.Errorf("inherited socket %s: %w", file.Name(), err)
		}
		l, err := net.FileListener(file)
		if err != nil {
			return nil, false, fmt.Errorf("inherited socket %s: %w", file.Name(), err)
		}
		return l, true, nil
	}
	return nil, false, nil
}

// giveUp ends the sockets that serve none of the addresses, for all who hold
// them: a connection is refused, and not queued for ever.
func (i *inherited) giveUp(wanted []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, file := range i.files {
		if !slices.ContainsFunc(wanted, func(address string) bool { return serves(file, address) }) {
			// One that does not listen cannot be shut: nothing is left to do.
			_ = control(file, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) })
		}
	}
}

// serves tells whether a socket is that of an address. One of all IPv6 addresses
// is one of all IPv4 addresses too, as systemd makes them.
func serves(file *os.File, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	var ip net.IP
	var at int
	err = control(file, func(fd int) error {
		name, err := unix.Getsockname(fd)
		switch a := name.(type) {
		case *unix.SockaddrInet4:
			ip, at = a.Addr[:], a.Port
		case *unix.SockaddrInet6:
			ip, at = a.Addr[:], a.Port
		}
		return err
	})
	wanted := net.ParseIP(host)
	if err != nil || strconv.Itoa(at) != port || wanted == nil || ip == nil {
		return false
	}
	if wanted.IsUnspecified() {
		return ip.IsUnspecified() && (len(ip) == net.IPv6len || wanted.To4() != nil)
	}
	return ip.Equal(wanted)
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
