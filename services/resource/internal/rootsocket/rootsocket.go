// SPDX-License-Identifier: Apache-2.0

// Package rootsocket makes sockets that only processes of root may use. A kubelet's are such
// by their mode; this process is not root, so it looks at the peer of each connection
// (SO_PEERCRED, unix(7)), and root needs no capability to open them.
package rootsocket

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Listen makes a socket, and its folder if that is missing. A socket that is there already
// is replaced in one step.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it has another name then
	if err = os.Chmod(fresh, 0o666); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.RemoveAll(fresh))
	}
	return listener{l}, nil
}

type listener struct{ *net.UnixListener }

// Accept closes connections of processes that are neither root's nor of this process's user.
func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := peer(conn); err == nil && (uid == 0 || int(uid) == os.Geteuid()) {
			return conn, nil
		}
		_ = conn.Close() // nothing was said
	}
}

// peer is the user of the process that connected.
func peer(conn *net.UnixConn) (uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	controlled := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(controlled, err); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
