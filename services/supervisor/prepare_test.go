// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestAdopt: what belonged to the service's former uid is handed over, and what a
// kubelet made as root, and nothing else: not what others own, not the pods'
// volumes.
func TestAdopt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	const former, other = 64201, 64300
	dir := filepath.Join(t.TempDir(), "pods")
	owners := map[string]int{
		"": former, "uid": former, "uid/etc-hosts": former, "uid/of-root": 0, "uid/of-another": other,
		"uid/volumes": 0, "uid/volumes/data": former,
	}
	for _, path := range []string{"", "uid", "uid/volumes"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, uid := range owners {
		full := filepath.Join(dir, path)
		if _, err := os.Stat(full); err != nil {
			if err := os.WriteFile(full, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Lchown(full, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	if err := (ownedFolder{dir, 0o751, Account{UID: 901, GID: 902}, true}).ensure(); err != nil {
		t.Fatal(err)
	}
	for path, uid := range owners {
		want := Account{UID: uint32(uid), GID: uint32(uid)}
		if uid == former && path != "uid/volumes/data" || path == "uid/of-root" {
			want = Account{UID: 901, GID: 902}
		}
		info, err := os.Lstat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		if got := (Account{UID: st.Uid, GID: st.Gid}); got != want {
			t.Errorf("%q belongs to %+v, want %+v", path, got, want)
		}
	}
}
