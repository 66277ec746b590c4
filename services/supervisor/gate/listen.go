// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// listen makes the socket for a uid. Its folder belongs to the client, which may put anything
// there under any name, at any moment. So the socket is made in a folder of root, given
// to the client, and moved by the folder's descriptor: a rename replaces what has the
// name and follows no link.
func listen(socket string, uid uint32) (*net.UnixListener, error) {
	dir, name := filepath.Split(socket)
	dir = filepath.Clean(dir)
	folder, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", dir, err)
	}
	defer unix.Close(folder) //nolint:errcheck // nothing was written
	private, err := os.MkdirTemp(filepath.Dir(dir), ".gate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private) //nolint:errcheck // empty by then; a leftover does no harm
	fresh := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Chown(fresh, int(uid), -1)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := unix.Renameat(unix.AT_FDCWD, fresh, folder, name); err != nil {
		return nil, errors.Join(fmt.Errorf("publish %s: %w", socket, err), l.Close())
	}
	return l, nil
}
