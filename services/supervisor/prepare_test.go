// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sextant-node/sextant/test/disk"
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

// TestPrepareOnADiskThatTakesNoWrites: what has not changed is there already, so that the
// node starts.
func TestPrepareOnADiskThatTakesNoWrites(t *testing.T) {
	for name, flags := range map[string][]string{"no secrets": {"--v=2"}, "secrets": {"--manifest-url-header=Authorization:x"}} {
		t.Run(name, func(t *testing.T) {
			d := disk.Small(t, "1m")
			in := func(path string) string { return filepath.Join(d.Dir, path) }
			p := &Plan{
				Run: t.TempDir(), State: in("state"), RootDir: in("kubelet"), CertDir: in("kubelet/pki"), LogDir: in("state/log"),
				PodLogsDir: in("log/pods"), LinksDir: in("log/containers"), UIDBase: 64200, Kubelet: flags, Units: true,
			}
			write := func() error { return errors.Join(p.Prepare(), p.Keep()) }
			if err := write(); err != nil {
				t.Fatal(err)
			}
			d.Fill()
			if err := write(); err != nil {
				t.Errorf("a full disk: %v", err)
			}
			d.ReadOnly(true)
			if err := write(); err != nil {
				t.Errorf("a read-only disk: %v", err)
			}
			p.Kubelet = []string{"--manifest-url-header=Authorization:y"}
			if err := p.Prepare(); err == nil {
				t.Error("another secret is not written, and there is no error")
			}
		})
	}
}
