// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// target makes the folder of a pod's volume.
func (b *bench) target(uid, volume string) string {
	b.Helper()
	dir := b.mkdir("root/pods/" + uid + "/volumes/kubernetes.io~nfs/" + volume)
	b.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			b.Errorf("left over: %v", err)
		}
	})
	return dir
}

func nfs(uid, volume, server, path string, options ...string) *supervisorv1.MountNFSRequest {
	return &supervisorv1.MountNFSRequest{PodUid: uid, Volume: volume, Server: server, Path: path, Options: options}
}

func TestMountNFS(t *testing.T) {
	b := newBench(t)
	dir, export := b.target("u", "pv"), b.mkdir("exports/fs.example/data")
	if err := os.WriteFile(filepath.Join(export, "file"), []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds it there
		if _, err := b.MountNFS(t.Context(), nfs("u", "pv", "fs.example", "/data", "nfsvers=4.1", "ro")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(got) != "theirs" {
		t.Errorf("in the volume: %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("written to a read-only one: %v", err)
	}
	want := "mount -t nfs -o nfsvers=4.1,ro -- fs.example:/data " + dir
	if got := b.asked(); len(got) != 1 || got[0] != want {
		t.Errorf("ran %q, want once %q", got, want)
	}
	b.target("u", "six")
	_, err := b.MountNFS(t.Context(), nfs("u", "six", "fd00::1", "/none"))
	if got := b.asked()[1]; !strings.Contains(got, "-t nfs -- [fd00::1]:/none ") || !rpc.Is(err, rpc.Conflict) {
		t.Errorf("IPv6: %q, %v", got, err)
	}
}

func TestMountNFSFails(t *testing.T) {
	b := newBench(t)
	dir := b.target("u", "v")
	_, err := b.MountNFS(t.Context(), nfs("u", "v", "denies", "/x", "hard"))
	want := "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs -o hard -- denies:/x " + dir +
		"\nOutput: mount.nfs: access denied by server while mounting denies:/x"
	if !rpc.Is(err, rpc.Conflict) || err.Error() != want {
		t.Errorf("denied: %v", err)
	}
	if _, err := b.MountNFS(t.Context(), nfs("u", "v", "later", "/x", "bg")); !rpc.Is(err, rpc.Conflict) || !strings.Contains(err.Error(), "nothing is mounted") {
		t.Errorf("behind the back: %v", err)
	}
	if _, err := b.MountNFS(t.Context(), nfs("u", "other", "later", "/x")); !rpc.Is(err, rpc.Conflict) {
		t.Errorf("no folder: %v", err)
	}
	outside := b.mkdir("outside")
	if err := os.Symlink(outside, filepath.Join(filepath.Dir(dir), "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.MountNFS(t.Context(), nfs("u", "link", "later", "/x")); !rpc.Is(err, rpc.Conflict) {
		t.Errorf("through a link: %v", err)
	}
	b.runner.path = outside
	if _, err := b.MountNFS(t.Context(), nfs("u", "v", "later", "/x")); !rpc.Is(err, rpc.Conflict) || !strings.Contains(err.Error(), "mount is not installed") {
		t.Errorf("without the tool: %v", err)
	}
}

// TestGoneServer: those who want a server that is gone wait no longer than they said,
// are not started without bound, and keep nobody from another one.
func TestGoneServer(t *testing.T) {
	b := newBench(t)
	b.mkdir("exports/fine/data")
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	fails := make(chan error, 3*mostAtPlace)
	names := "abcdefghijklmnopqrst"
	for i := range 3 * mostAtPlace {
		name := "v" + names[i:i+1]
		b.target("u", name)
		calls.Go(func() {
			_, err := b.MountNFS(ctx, nfs("u", name, "gone", "/x"))
			fails <- err
		})
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for limit := time.Now().Add(time.Minute); len(b.asked()) < mostAtPlace; <-again.C {
		if time.Now().After(limit) {
			t.Fatalf("ran %q", b.asked())
		}
	}
	b.target("u", "fine")
	if _, err := b.MountNFS(t.Context(), nfs("u", "fine", "fine", "/data")); err != nil {
		t.Errorf("another server: %v", err)
	}
	cancel()
	calls.Wait()
	close(fails)
	for err := range fails {
		if !rpc.Is(err, rpc.Unavailable) {
			t.Errorf("%v, want unavailable", err)
		}
	}
	if n := len(b.asked()); n != mostAtPlace+1 {
		t.Errorf("%d tools ran, want %d and one", n, mostAtPlace)
	}
	soon, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for range mostAtPlace {
		if _, err := b.runner.places.Enter(soon, "NFS server gone"); err != nil {
			t.Fatalf("a place was not given back: %v", err)
		}
	}
}

func TestChecksNFS(t *testing.T) {
	b := newBench(t)
	for field, r := range map[string]*supervisorv1.MountNFSRequest{
		"pod_uid": nfs("../x", "v", "s", "/p"),
		"volume":  nfs("u", "..", "s", "/p"),
		"server":  nfs("u", "v", "-o", "/p"),
		"path":    nfs("u", "v", "s", "p"),
		"options": nfs("u", "v", "s", "/p", "ro,bind"),
	} {
		if _, err := b.MountNFS(t.Context(), r); !rpc.Is(err, rpc.Invalid) || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, bad := range []string{"", "-x", "bind", "remount", "loop=/dev/loop0", "X-mount.mkdir", "helper=x", "a b", "a=b\nc", "a=b c"} {
		if err := checkNFS(nfs("u", "v", "s", "/p", bad)); !rpc.Is(err, rpc.Invalid) {
			t.Errorf("option %q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "a b", "a:b", "s/x", "-s", "a\nb", "[::1]"} {
		if err := checkNFS(nfs("u", "v", bad, "/p")); !rpc.Is(err, rpc.Invalid) {
			t.Errorf("server %q: %v", bad, err)
		}
	}
	if err := checkNFS(nfs("u", "v", "Server_1.example", "/a b/ü", "vers=4.2", "soft", "timeo=30", "retrans=2", "sec=krb5:krb5p", "_netdev", "proto=tcp6",
		"local_lock=none", "rsize=1048576", "nconnect=4", "noatime", "mountaddr=10.0.0.1", "clientaddr=fd00::2", "xprtsec=mtls", "x-systemd.automount")); err != nil {
		t.Error(err)
	}
}
