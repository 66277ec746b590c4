// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/test/uids"
)

// TestAdoptInAHostileFolder: while root hands over what is in a service's folder, the
// service puts links to a folder of root's in the place of its own, and gives a file
// of root's a second name. What is not in the folder stays root's.
func TestAdoptInAHostileFolder(t *testing.T) {
	const service = 64208
	uids.Each(t, func(t *testing.T) {
		top := uids.Folder(t)
		state, etc := filepath.Join(top, "state"), filepath.Join(top, "etc")
		secret, linked, inner := filepath.Join(etc, "secret"), filepath.Join(top, "linked"), filepath.Join(state, "d")
		for _, dir := range []string{state, inner, etc} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for path, owner := range map[string]int{state: service, inner: service} {
			if err := os.Chown(path, owner, owner); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{secret, linked, filepath.Join(inner, "secret")} {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := uids.As(service, func() error { return os.Symlink(etc, filepath.Join(state, "link")) }); err != nil {
			t.Fatal(err)
		}
		attack := func() {
			_ = os.Link(linked, filepath.Join(state, "hard")) // where the kernel lets it
			for range 100 {
				_ = unix.Renameat2(unix.AT_FDCWD, inner, unix.AT_FDCWD, filepath.Join(state, "link"), unix.RENAME_EXCHANGE)
			}
		}
		folder := ownedFolder{state, 0o700, Account{UID: service, GID: service}, true}
		uids.During(t, service, attack, func() {
			for range 300 {
				if err := folder.ensure(); err != nil {
					t.Fatal(err)
				}
			}
		})
		for _, path := range []string{secret, linked} {
			if owner := uids.Owner(t, path); owner != 0 {
				t.Errorf("%s belongs to uid %d", path, owner)
			}
		}
		if err := folder.ensure(); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"d", "link"} {
			path := filepath.Join(state, dir, "secret")
			if info, err := os.Lstat(filepath.Dir(path)); err == nil && info.IsDir() && uids.Owner(t, path) != service {
				t.Errorf("%s, which is in the folder, was not handed over", path)
			}
		}
	})
}

// TestAdoptEndsInDeepFolders: a folder as deep as a path may be, and deeper, is no
// reason not to start.
func TestAdoptEndsInDeepFolders(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	const former, service = 64201, 901
	top := t.TempDir()
	root, err := os.OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for range 2100 {
		if err := root.Mkdir("d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := root.OpenRoot("d")
		if err != nil {
			t.Fatal(err)
		}
		root.Close()
		root = next
	}
	if err := os.Chown(top, former, former); err != nil {
		t.Fatal(err)
	}
	if err := (ownedFolder{top, 0o700, Account{UID: service, GID: service}, true}).ensure(); err != nil {
		t.Fatal(err)
	}
	for deep, want := range map[int]uint32{0: service, 1: service, 10: service, 100: 0} {
		if got := uids.Owner(t, filepath.Join(top, strings.Repeat("d/", deep))); got != want {
			t.Errorf("%d folders down: uid %d, want %d", deep, got, want)
		}
	}
}
