// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWriteShared: whatever a container has made of a file it shares, it gets its content
// again, without being read whole and without anything else being written.
func TestWriteShared(t *testing.T) {
	const content = "127.0.0.1 localhost\n"
	for name, tc := range map[string]struct {
		make func(path, other string) error
		same bool // it is the file that is mounted
	}{
		"nothing":    {func(string, string) error { return nil }, false},
		"as it is":   {func(path, _ string) error { return os.WriteFile(path, []byte(content), 0o644) }, true},
		"other text": {func(path, _ string) error { return os.WriteFile(path, []byte("127.0.0.1 l0calhost\n"), 0o644) }, true},
		"empty":      {func(path, _ string) error { return os.WriteFile(path, nil, 0o600) }, true},
		"longer than memory": {func(path, _ string) error {
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				return err
			}
			return os.Truncate(path, 400<<30)
		}, true},
		"a link": {func(path, other string) error { return os.Symlink(other, path) }, false},
		"a pipe": {func(path, _ string) error { return unix.Mkfifo(path, 0o666) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, other := filepath.Join(dir, "etc-hosts"), filepath.Join(dir, "other")
			if err := os.WriteFile(other, []byte("of the node"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := tc.make(path, other); err != nil {
				t.Fatal(err)
			}
			before, _ := os.Lstat(path)
			if err := writeShared(path, []byte(content)); err != nil {
				t.Fatal(err)
			}
			after, err := os.Lstat(path)
			if err != nil || !after.Mode().IsRegular() || after.Mode().Perm() != sharedMode || after.Size() != int64(len(content)) {
				t.Fatalf("%v, %v", after, err)
			}
			if got := mustRead(t, path); got != content {
				t.Errorf("it holds %q", got)
			}
			if got := mustRead(t, other); got != "of the node" {
				t.Errorf("the other file holds %q", got)
			}
			if tc.same && !os.SameFile(before, after) {
				t.Error("it is another file: running containers do not see it")
			}
		})
	}
}

// TestHostsFileLongerThanMemory: the second start of a container whose hosts file was
// made large reads none of that.
func TestHostsFileLongerThanMemory(t *testing.T) {
	n := start(t, false)
	p := web()
	spec := n.up(p)
	if _, err := n.StartContainer(n.ctx(), spec); err != nil {
		t.Fatal(err)
	}
	before := mustRead(t, n.layout.EtcHosts(p.UID))
	if err := os.Truncate(n.layout.EtcHosts(p.UID), 400<<30); err != nil {
		t.Fatal(err)
	}
	spec.RestartCount++
	if _, err := n.StartContainer(n.ctx(), spec); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(n.layout.EtcHosts(p.UID)); err != nil || info.Size() != int64(len(before)) {
		t.Errorf("%v, %v", info, err)
	}
}
