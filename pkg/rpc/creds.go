// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/sextant-node/sextant/pkg/house"
)

// Peer is who is at the other end of a Unix socket, as the kernel says
// (SO_PEERCRED).
type Peer struct {
	credentials.CommonAuthInfo
	PID      int32
	UID, GID uint32
	// Services the uid may speak for.
	Services []house.Service
}

// AuthType implements credentials.AuthInfo.
func (*Peer) AuthType() string { return "unix-peer" }

// Is reports whether the peer may speak for a service.
func (p *Peer) Is(s house.Service) bool { return p != nil && slices.Contains(p.Services, s) }

// Any reports whether any of the peer's services passes.
func (p *Peer) Any(ok func(house.Service) bool) bool {
	return p != nil && slices.ContainsFunc(p.Services, ok)
}

// PeerFrom is the peer of the call that ctx belongs to, or nil.
func PeerFrom(ctx context.Context) *Peer {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, _ := p.AuthInfo.(*Peer)
	return info
}

// peerCreds reads the kernel's credentials at the handshake and refuses
// strangers before a byte is parsed.
type peerCreds struct {
	ids     house.Identities
	refused func(uid uint32, pid int32)
}

func (c *peerCreds) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p, err := peerOf(conn, c.ids)
	if err != nil {
		return nil, nil, err
	}
	if len(p.Services) == 0 {
		if c.refused != nil {
			c.refused(p.UID, p.PID)
		}
		return nil, nil, fmt.Errorf("uid %d is no service of this node", p.UID)
	}
	return conn, p, nil
}

// Credentials asks the kernel who connected to a Unix socket.
func Credentials(conn net.Conn) (*unix.Ucred, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("not a unix socket: %T", conn)
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	controlled := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(controlled, err); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	return cred, nil
}

// peerOf is who connected, and which services that may speak for.
func peerOf(conn net.Conn, ids house.Identities) (*Peer, error) {
	cred, err := Credentials(conn)
	if err != nil {
		return nil, err
	}
	return &Peer{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		PID:            cred.Pid, UID: cred.Uid, GID: cred.Gid, Services: ids.Peers(cred.Uid),
	}, nil
}

// Admit wraps a Unix listener so that only peers whose uid speaks for a service
// that passes ok get a connection; others are closed unread. It is for sockets
// that do not speak gRPC.
func Admit(l net.Listener, ids house.Identities, ok func(house.Service) bool) net.Listener {
	return &admitting{l, ids, ok}
}

type admitting struct {
	net.Listener
	ids house.Identities
	ok  func(house.Service) bool
}

func (a *admitting) Accept() (net.Conn, error) {
	for {
		conn, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if p, err := peerOf(conn, a.ids); err == nil && p.Any(a.ok) {
			return conn, nil
		}
		_ = conn.Close() // a stranger: nothing to tell it
	}
}

func (c *peerCreds) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("server credentials used by a client")
}

func (c *peerCreds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

func (c *peerCreds) Clone() credentials.TransportCredentials { clone := *c; return &clone }

func (c *peerCreds) OverrideServerName(string) error { return nil }
