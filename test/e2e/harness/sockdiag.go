// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The kernel's interface for listing Unix sockets: sock_diag(7).
const (
	sockDiagByFamily = 20
	unixDiagName     = 0
	unixDiagPeer     = 2
	showName         = 1 << unixDiagName
	showPeer         = 1 << unixDiagPeer

	netlinkHeader = 16 // struct nlmsghdr
	unixDiagMsg   = 16 // struct unix_diag_msg
	attrHeader    = 4  // struct nlattr
)

// errChanged says that sockets came or went while they were being listed.
var errChanged = errors.New("the list changed while it was read")

// unixSocket is one end of a connection: the path it is bound to, if any, and
// the inode of the other end, zero for a listener.
type unixSocket struct {
	path string
	peer uint32
}

// unixSockets lists every Unix socket of the network namespace.
func unixSockets() ([]unixSocket, error) {
	for {
		found, err := listUnixSockets()
		if !errors.Is(err, errChanged) {
			return found, err
		}
	}
}

func listUnixSockets() ([]unixSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	if err := unix.Sendto(fd, unixDiagRequest(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("ask sock_diag: %w", err)
	}
	var found []unixSocket
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read sock_diag: %w", err)
		}
		more, done, err := parseUnixSockets(buf[:n])
		found = append(found, more...)
		if done || err != nil {
			return found, err
		}
	}
}

// unixDiagRequest asks for name and peer of every socket in every state.
func unixDiagRequest() []byte {
	const length = netlinkHeader + 24
	b := make([]byte, length)
	binary.NativeEndian.PutUint32(b[0:], length)
	binary.NativeEndian.PutUint16(b[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b[netlinkHeader] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(b[netlinkHeader+4:], ^uint32(0)) // states
	binary.NativeEndian.PutUint32(b[netlinkHeader+12:], showName|showPeer)
	return b
}

// parseUnixSockets reads the messages of one datagram; done is set by the last.
func parseUnixSockets(b []byte) (found []unixSocket, done bool, err error) {
	for len(b) >= netlinkHeader {
		length := int(binary.NativeEndian.Uint32(b))
		kind := binary.NativeEndian.Uint16(b[4:])
		flags := binary.NativeEndian.Uint16(b[6:])
		if length < netlinkHeader || length > len(b) {
			return found, false, fmt.Errorf("sock_diag: message of %d bytes in %d", length, len(b))
		}
		body := b[netlinkHeader:length]
		b = b[min(align(length), len(b)):]
		switch {
		case flags&unix.NLM_F_DUMP_INTR != 0:
			return nil, false, errChanged
		case kind == unix.NLMSG_DONE:
			return found, true, nil
		case kind == unix.NLMSG_ERROR && len(body) >= 4:
			return nil, false, fmt.Errorf("sock_diag: %w", unix.Errno(-int32(binary.NativeEndian.Uint32(body))))
		case kind == sockDiagByFamily && len(body) >= unixDiagMsg:
			found = append(found, parseUnixSocket(body[unixDiagMsg:]))
		}
	}
	return found, false, nil
}

// parseUnixSocket reads the attributes of one socket.
func parseUnixSocket(b []byte) (s unixSocket) {
	for len(b) >= attrHeader {
		length := int(binary.NativeEndian.Uint16(b))
		if length < attrHeader || length > len(b) {
			return s
		}
		value := b[attrHeader:length]
		switch binary.NativeEndian.Uint16(b[2:]) {
		case unixDiagName:
			name, _, _ := bytes.Cut(value, []byte{0})
			s.path = string(name)
		case unixDiagPeer:
			if len(value) >= 4 {
				s.peer = binary.NativeEndian.Uint32(value)
			}
		}
		b = b[min(align(length), len(b)):]
	}
	return s
}

// align rounds up to the four bytes that netlink aligns to.
func align(n int) int { return (n + 3) &^ 3 }
