// SPDX-License-Identifier: Apache-2.0

package file_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/test/disk"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func names(t *testing.T, dir string) string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range all {
		list = append(list, e.Name())
	}
	return strings.Join(list, " ")
}

func TestReplace(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"nothing there":         func(string) error { return nil },
		"a former one":          func(path string) error { return os.WriteFile(path, []byte("old"), 0o644) },
		"one half written":      func(path string) error { return os.WriteFile(path+".tmp", []byte("half"), 0o400) },
		"a folder half way":     func(path string) error { return os.MkdirAll(path+".tmp/x", 0o755) },
		"a folder in its place": func(path string) error { return os.MkdirAll(path+"/x", 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a")
			if err := prepare(path); err != nil {
				t.Fatal(err)
			}
			if err := file.Replace(path, []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != 0o600 || read(t, path) != "new" {
				t.Errorf("%v, %v", info, err)
			}
			left := strings.TrimSpace(strings.TrimPrefix(names(t, dir), "a"))
			if left != "" && !strings.HasPrefix(left, "a.damaged-") {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestLink: a link is made and led elsewhere, whatever an earlier life left; a link that
// cannot be made leaves the former.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	for _, to := range []string{"a", "b"} {
		if err := os.Symlink("of an earlier life", link+file.Half); err != nil {
			t.Fatal(err)
		}
		if err := file.Link(link, to); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(link); err != nil || got != to {
			t.Errorf("leads to %q, %v; want %q", got, err, to)
		}
	}
	if err := file.Link(link, strings.Repeat("too long", 1000)); err == nil {
		t.Error("no error")
	}
	if got, err := os.Readlink(link); err != nil || got != "b" {
		t.Errorf("leads to %q, %v; want the former", got, err)
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("left over: %v", all)
	}
}

// TestReplaceOnAFullDisk leaves the former content, and nothing half written.
func TestReplaceOnAFullDisk(t *testing.T) {
	d := disk.Small(t, "64k")
	path := filepath.Join(d.Dir, "a")
	if err := file.Replace(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Fill()
	if err := file.Replace(path, []byte("new"), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	d.ReadOnly(true)
	if err := file.Replace(path, []byte("new"), 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a read-only disk: %v", err)
	}
	d.ReadOnly(false)
	if read(t, path) != "old" || names(t, d.Dir) != "a full" {
		t.Errorf("%q in %s", read(t, path), names(t, d.Dir))
	}
}

// TestReplaceKilled: at each fault point there is the former content or the new.
func TestReplaceKilled(t *testing.T) {
	const env = "FILE_TEST_PATH"
	if path := os.Getenv(env); path != "" {
		if err := fault.FromEnv(); err != nil {
			t.Fatal(err)
		}
		t.Fatal("not killed: ", file.Replace(path, []byte("new"), 0o600))
	}
	for point, want := range map[string]string{"file.write": "old", "file.written": "new"} {
		path := filepath.Join(t.TempDir(), "a")
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestReplaceKilled$")
		cmd.Env = append(os.Environ(), env+"="+path, fmt.Sprintf("%s=%s=kill", fault.Env, point))
		out, err := cmd.CombinedOutput()
		if err == nil || strings.Contains(string(out), "not killed") {
			t.Fatalf("%s: %v\n%s", point, err, out)
		}
		if got := read(t, path); got != want {
			t.Errorf("%s: %q", point, got)
		}
	}
}

// TestDamagedCopiesAreFew: the newest three of a name stay, and what is not one of them.
func TestDamagedCopiesAreFew(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, other := range []string{"ab.damaged-20200101-000000", "a.tmp", "b.damaged-20200101-000000"} {
		if err := os.WriteFile(filepath.Join(dir, other), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(path+".damaged-20200101-000000", 0o700); err != nil { // a folder that had the name
		t.Fatal(err)
	}
	last := ""
	for i, minute := range []int{1, 2, 3, 4, 5, 0} { // the clock is set back
		if err := os.WriteFile(path, []byte(fmt.Sprint(i)), 0o600); err != nil {
			t.Fatal(err)
		}
		kept, err := file.KeepAside(path, time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		last = kept
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := "a a.damaged-20200101-000000 a.damaged-20260102-030000 a.damaged-20260102-030400 a.damaged-20260102-030500 a.tmp ab.damaged-20200101-000000 b.damaged-20200101-000000"
	if got := strings.Join(names, " "); got != want || read(t, last) != "5" {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAside(t *testing.T) {
	now := func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for i, want := range []string{"a.damaged-20260102-030405", "a.damaged-20260102-030405.2", "a.damaged-20260102-030405.3"} {
		if err := os.WriteFile(path, []byte(fmt.Sprint(i)), 0o600); err != nil {
			t.Fatal(err)
		}
		set := file.Aside
		if i == 2 {
			set = file.KeepAside
		}
		to, err := set(path, now())
		if err != nil || filepath.Base(to) != want || read(t, to) != fmt.Sprint(i) {
			t.Errorf("%s, %v", to, err)
		}
	}
	if read(t, path) != "2" {
		t.Error("the name is lost")
	}
}
