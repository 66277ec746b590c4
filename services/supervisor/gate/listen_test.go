// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/test/uids"
)

// TestSocketInAHostileFolder: the client owns the folder of the socket, and puts links
// to a file of root's in the place of whatever the gate makes there. The file stays
// root's, and in the end the client has its socket.
func TestSocketInAHostileFolder(t *testing.T) {
	const client = 64206
	uids.Each(t, func(t *testing.T) {
		top := uids.Folder(t)
		dir, victim := filepath.Join(top, "resource"), filepath.Join(top, "secret")
		socket, spare := filepath.Join(dir, "systemd.sock"), filepath.Join(dir, "link")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, client, client); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(victim, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		g := &Gate{Socket: socket, UID: client, Bus: "/nonexistent", Policy: Slices{}, Log: slog.New(slog.DiscardHandler)}
		once := func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if err := g.run(ctx, cancel); err != nil {
				t.Log(err) // the client's own loss
			}
		}
		attack := func() {
			var st unix.Stat_t
			for range 1000 {
				if unix.Lstat(socket, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
					_ = unix.Symlink(victim, spare) // it may be there already
					_ = unix.Rename(spare, socket)  // the attack
					_ = unix.Symlink(victim, spare) // for the next time
				}
			}
		}
		uids.During(t, client, attack, func() {
			for range 100 {
				once()
			}
		})
		var st unix.Stat_t
		if err := unix.Stat(victim, &st); err != nil || st.Uid != 0 || st.Mode&0o777 != 0o600 {
			t.Fatalf("root's file belongs to uid %d, mode %o, %v", st.Uid, st.Mode&0o777, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := g.run(ctx, func() {
			defer cancel()
			if info, err := os.Lstat(socket); err != nil || info.Mode().Type() != os.ModeSocket || info.Mode().Perm() != 0o600 || uids.Owner(t, socket) != client {
				t.Errorf("the socket: %v, %v", info, err)
			}
			if err := uids.As(client, func() error {
				conn, err := net.Dial("unix", socket)
				if err != nil {
					return err
				}
				return conn.Close()
			}); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		if left, err := filepath.Glob(filepath.Join(top, ".gate-*")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}
