// SPDX-License-Identifier: Apache-2.0

package atomic_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sextant-node/sextant/services/volume/internal/atomic"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type files map[string]atomic.File

func file(text string) atomic.File { return atomic.File{Data: []byte(text), Mode: 0o644} }

func folder(t *testing.T) atomic.Folder {
	t.Helper()
	return atomic.Folder{Path: t.TempDir(), Root: 0o777, Mode: 0o755}
}

// write writes and reports what changed, and the data folder after it.
func write(t *testing.T, f atomic.Folder, content files) (changed bool, data string) {
	t.Helper()
	changed, err := f.Write(content, noon)
	if err != nil {
		t.Fatal(err)
	}
	data, err = os.Readlink(filepath.Join(f.Path, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	return changed, data
}

// seen is what a container reads: text by path, links followed.
func seen(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	var walk func(rel string)
	walk = func(rel string) {
		entries, err := os.ReadDir(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "..") {
				continue
			}
			path := filepath.Join(rel, e.Name())
			info, err := os.Stat(filepath.Join(dir, path))
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(path)
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, path))
			if err != nil {
				t.Fatal(err)
			}
			all[path] = string(text)
		}
	}
	walk("")
	return all
}

func expect(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	if got := seen(t, dir); !maps.Equal(got, want) {
		t.Errorf("reads %v, want %v", got, want)
	}
}

// names are all entries of a folder; data folders as "..<time>".
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, "..2") {
			name = name[:strings.LastIndexByte(name, '.')]
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestLayoutIsTheKubelets(t *testing.T) {
	f := folder(t)
	if atomic.Written(f.Path) {
		t.Error("an empty folder counts as written")
	}
	changed, data := write(t, f, files{"a": file("1"), "sub/b": file("2")})
	if !changed || !strings.HasPrefix(data, "..2026_03_01_12_00_00.") {
		t.Errorf("changed %v, data folder %s", changed, data)
	}
	if got, want := names(t, f.Path), "..2026_03_01_12_00_00 ..data a sub"; got != want {
		t.Errorf("entries %q, want %q", got, want)
	}
	for name, want := range map[string]string{"a": "..data/a", "sub": "..data/sub"} {
		if target, err := os.Readlink(filepath.Join(f.Path, name)); err != nil || target != want {
			t.Errorf("%s links to %q, %v", name, target, err)
		}
	}
	expect(t, f.Path, map[string]string{"a": "1", "sub/b": "2"})
	if !atomic.Written(f.Path) {
		t.Error("a written folder does not count as written")
	}
}

// TestWrittenIsWhole: at no moment does a folder count as written that lacks a name, or that
// its owner may not enter yet: after a kill at that moment containers would be started.
func TestWrittenIsWhole(t *testing.T) {
	f := folder(t)
	if err := os.Chmod(f.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	content := files{}
	for i := range 200 {
		content[fmt.Sprintf("f%03d", i)] = file("x")
	}
	done := make(chan error, 1)
	go func() { _, err := f.Write(content, noon); done <- err }()
	for ended := false; !ended && !atomic.Written(f.Path); {
		select {
		case err := <-done:
			done <- err
			ended = true
		default:
		}
	}
	missing := 0
	for name := range content {
		if _, err := os.Stat(filepath.Join(f.Path, name)); err != nil {
			missing++
		}
	}
	if info, err := os.Stat(f.Path); err != nil || info.Mode().Perm() != f.Root || missing > 0 {
		t.Errorf("it counts as written: %v, %v, %d names are missing", info, err, missing)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestEqualFilesChangeNothing(t *testing.T) {
	f := folder(t)
	content := files{"a": file("1"), "sub/b": file("2")}
	_, before := write(t, f, content)
	if changed, after := write(t, f, content); changed || after != before {
		t.Errorf("changed %v, data folder %s after %s", changed, after, before)
	}
}

func TestWhatIsADifference(t *testing.T) {
	for name, next := range map[string]files{
		"text":          {"a": file("2"), "d/b": file("2")},
		"longer":        {"a": file("11"), "d/b": file("2")},
		"mode":          {"a": {Data: []byte("1"), Mode: 0o600}, "d/b": file("2")},
		"one more":      {"a": file("1"), "d/b": file("2"), "c": file("")},
		"one fewer":     {"a": file("1")},
		"none":          {},
		"renamed":       {"a": file("1"), "e/b": file("2")},
		"file to dir":   {"a/x": file("1"), "d/b": file("2")},
		"dir to file":   {"a": file("1"), "d": file("2")},
		"deeper by one": {"a": file("1"), "d/b/c": file("2")},
	} {
		t.Run(name, func(t *testing.T) {
			f := folder(t)
			_, before := write(t, f, files{"a": file("1"), "d/b": file("2")})
			changed, after := write(t, f, next)
			if !changed || after == before {
				t.Error("not noticed")
			}
			want := map[string]string{}
			for path, content := range next {
				want[path] = string(content.Data)
			}
			expect(t, f.Path, want)
			if _, err := os.Lstat(filepath.Join(f.Path, before)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the former data folder is left: %v", err)
			}
		})
	}
}

func TestAReaderKeepsWhatItOpened(t *testing.T) {
	f := folder(t)
	write(t, f, files{"a": file("old")})
	open, err := os.Open(filepath.Join(f.Path, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	write(t, f, files{"a": file("new")})
	text := make([]byte, 10)
	n, err := open.Read(text)
	if err != nil || string(text[:n]) != "old" {
		t.Errorf("an open file reads %q, %v", text[:n], err)
	}
	expect(t, f.Path, map[string]string{"a": "new"})
}

func TestOwnersAndModes(t *testing.T) {
	f := folder(t)
	f.UID, f.GID, f.Root, f.Mode = 11, 12, 0o777|fs.ModeSticky|fs.ModeSetgid, 0o755|fs.ModeSetgid
	if err := os.Chmod(f.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	_, data := write(t, f, files{"a": {Data: nil, Mode: 0o640, UID: 21, GID: 22}, "d/b": file("")})
	for path, want := range map[string]string{
		"": "11:12 3777", data: "11:12 2755", data + "/d": "11:12 2755",
		data + "/a": "21:22 640", data + "/d/b": "0:0 644", "..data": "11:12", "a": "21:12", "d": "11:12",
	} {
		info, err := os.Lstat(filepath.Join(f.Path, path))
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		got := fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode&0o7777)
		if info.Mode()&fs.ModeSymlink != 0 {
			got = fmt.Sprintf("%d:%d", st.Uid, st.Gid)
		}
		if got != want {
			t.Errorf("%q is %s, want %s", path, got, want)
		}
	}
}

// TestCrashes leaves a folder as a crash does at each step, and writes again.
func TestCrashes(t *testing.T) {
	old, next := files{"a": file("1"), "gone": file("x")}, files{"a": file("2"), "b": file("3")}
	for name, crash := range map[string]func(t *testing.T, dir string){
		"data folder begun": func(t *testing.T, dir string) { mkdir(t, dir, "..2026_02_28_00_00_00.1") },
		"swap link made": func(t *testing.T, dir string) {
			mkdir(t, dir, "..2026_02_28_00_00_00.1")
			link(t, "..2026_02_28_00_00_00.1", dir, "..data_tmp")
		},
		"swapped, not linked": func(t *testing.T, dir string) {
			mkdir(t, dir, "..2026_02_28_00_00_00.1")
			text(t, dir, "..2026_02_28_00_00_00.1/a", "2")
			text(t, dir, "..2026_02_28_00_00_00.1/b", "3")
			link(t, "..2026_02_28_00_00_00.1", dir, "..data_tmp")
			if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
		},
		"power cut: data is empty": func(t *testing.T, dir string) { text(t, dir, "..data/a", "") },
		"power cut: data is away": func(t *testing.T, dir string) {
			data, err := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(data); err != nil {
				t.Fatal(err)
			}
		},
		"a folder in the way of a name":   func(t *testing.T, dir string) { mkdir(t, dir, "b/c") },
		"a folder in the way of the swap": func(t *testing.T, dir string) { mkdir(t, dir, "..data_tmp/c") },
	} {
		t.Run(name, func(t *testing.T) {
			f := folder(t)
			write(t, f, old)
			crash(t, f.Path)
			write(t, f, next)
			expect(t, f.Path, map[string]string{"a": "2", "b": "3"})
			if got, want := names(t, f.Path), "..2026_03_01_12_00_00 ..data a b"; got != want && name != "swapped, not linked" {
				t.Errorf("entries %q, want %q", got, want)
			}
		})
	}
}

func TestNamesThatAreRefused(t *testing.T) {
	for _, bad := range []files{
		{"": file("")}, {"/etc/passwd": file("")}, {"../x": file("")}, {"a/../../x": file("")}, {"..": file("")},
		{"..data": file("")}, {"..data/x": file("")}, {".": file("")}, {"a//b": file("")}, {"a/": file("")},
		{"a": file(""), "a/b": file("")},
	} {
		f := folder(t)
		if _, err := f.Write(bad, noon); err == nil || !strings.Contains(err.Error(), "path ") {
			t.Errorf("%v: %v, want an error that names the path", bad, err)
		}
		if got := names(t, f.Path); got != "" {
			t.Errorf("%v left %q", bad, got)
		}
	}
	f := folder(t)
	write(t, f, files{".hidden": file("1")})
	expect(t, f.Path, map[string]string{".hidden": "1"})
}

func mkdir(t *testing.T, dir, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, dir, path, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, dir, name string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}
