// SPDX-License-Identifier: Apache-2.0

// Package rootsocket makes sockets that only processes of root may use. A kubelet's are such
// by their mode; this process is not root, so it looks at the peer of each connection
// (SO_PEERCRED, unix(7)), and root needs no capability to open them.
package rootsocket

import (
	"net"
	"os"
	"path/filepath"

	"github.com/sextant-node/sextant/pkg/rpc"
)

// Listen makes a socket, and its folder if that is missing. A socket that is there already
// is replaced in one step.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	l, err := rpc.Listen(path)
	if err != nil {
		return nil, err
	}
	return listener{l}, nil
}

type listener struct{ net.Listener }

// Accept closes connections of processes that are neither root's nor of this process's user.
func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if peer, err := rpc.Credentials(conn); err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid()) {
			return conn, nil
		}
		_ = conn.Close() // nothing was said
	}
}
