// SPDX-License-Identifier: Apache-2.0

package mounts_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/mounts"
)

// kernels runs a test on this kernel, and as on one before Linux 5.6.
func kernels(t *testing.T, test func(t *testing.T)) {
	t.Run("openat2", test)
	t.Run("without openat2", func(t *testing.T) {
		mounts.WithoutOpenat2(t)
		test(t)
	})
}

// mount mounts something for the length of a test, and more of the same on top of it.
func mount(t testing.TB, source, target, fstype string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(source, target, fstype, flags, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) }) //nolint:errcheck // the test may have done so
}

func mkdir(t testing.TB, path ...string) string {
	t.Helper()
	dir := filepath.Join(path...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func gone(t testing.TB, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err != nil
}

func TestOn(t *testing.T) {
	kernels(t, func(t *testing.T) {
		dir := t.TempDir()
		source, file := mkdir(t, dir, "source"), write(t, dir, "source-file")
		for name, test := range map[string]struct {
			path string
			is   bool
		}{
			"a folder":              {mkdir(t, dir, "plain"), false},
			"a bind of this device": {mkdir(t, dir, "bind"), true},
			"a file system":         {mkdir(t, dir, "tmpfs"), true},
			"a file":                {write(t, dir, "plain-file"), false},
			"a bind of a file":      {write(t, dir, "bind-file"), true},
		} {
			switch base := filepath.Base(test.path); base {
			case "bind":
				mount(t, source, test.path, "", unix.MS_BIND)
			case "bind-file":
				mount(t, file, test.path, "", unix.MS_BIND)
			case "tmpfs":
				mount(t, "tmpfs", test.path, "tmpfs", 0)
			}
			if is, err := mounts.On(test.path); err != nil || is != test.is {
				t.Errorf("%s: %v, %v, want %v", name, is, err, test.is)
			}
		}
		for _, missing := range []string{"none", "none/below"} {
			if is, err := mounts.On(filepath.Join(dir, missing)); err != nil || is {
				t.Errorf("%s: %v, %v, want that nothing is mounted there", missing, is, err)
			}
		}
	})
}

// TestRemoveTreeStopsAtMounts: whatever is mounted below is left, and everything else
// goes.
func TestRemoveTreeStopsAtMounts(t *testing.T) {
	kernels(t, func(t *testing.T) {
		dir := t.TempDir()
		precious := []string{write(t, mkdir(t, dir, "data"), "precious"), write(t, dir, "data-file")}
		top := mkdir(t, dir, "top")
		mount(t, filepath.Join(dir, "data"), mkdir(t, top, "a", "bind"), "", unix.MS_BIND)
		mount(t, filepath.Join(dir, "data-file"), write(t, mkdir(t, top, "b"), "file"), "", unix.MS_BIND)
		memory := mkdir(t, top, "c", "memory")
		mount(t, "tmpfs", memory, "tmpfs", 0)
		precious = append(precious, write(t, memory, "precious"))
		others := []string{mkdir(t, top, "a", "other"), mkdir(t, top, "d", "e"), write(t, top, "file"), write(t, top, "b", "other")}
		if err := os.Symlink(filepath.Join(dir, "data"), filepath.Join(top, "link")); err != nil {
			t.Fatal(err)
		}
		others = append(others, filepath.Join(top, "link"))
		err := mounts.RemoveTree(top)
		if err == nil || !strings.HasPrefix(err.Error(), "remove "+top+"/") || !strings.HasSuffix(err.Error(), "(and others)") {
			t.Errorf("error %v", err)
		}
		for _, path := range precious {
			if gone(t, path) {
				t.Errorf("%s was removed through a mount", path)
			}
		}
		for _, path := range others {
			if !gone(t, path) {
				t.Errorf("%s is left", path)
			}
		}
		for _, point := range []string{"a/bind", "b/file", "c/memory"} {
			if err := unix.Unmount(filepath.Join(top, point), 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := mounts.RemoveTree(top); err != nil || !gone(t, top) {
			t.Errorf("without mounts: %v", err)
		}
		if gone(t, precious[0]) || gone(t, precious[1]) {
			t.Error("what had been bound is gone")
		}
	})
}

// TestRemoveTreeWhileMounting: binds that come while folders go never cost what is
// behind them.
func TestRemoveTreeWhileMounting(t *testing.T) {
	kernels(t, func(t *testing.T) {
		bound := 0
		for range 20 {
			dir := t.TempDir()
			precious := write(t, mkdir(t, dir, "data"), "precious")
			top := filepath.Join(dir, "top")
			var points []string
			for i := range 40 {
				points = append(points, mkdir(t, top, fmt.Sprint(i%4), fmt.Sprint(i)))
			}
			begin := make(chan struct{})
			var both sync.WaitGroup
			both.Go(func() {
				<-begin
				for _, point := range points {
					if unix.Mount(filepath.Join(dir, "data"), point, "", unix.MS_BIND, "") == nil {
						bound++
					}
					runtime.Gosched()
				}
			})
			both.Go(func() {
				<-begin
				mounts.RemoveTree(top) //nolint:errcheck // it may meet a mount
			})
			close(begin)
			both.Wait()
			if gone(t, precious) {
				t.Fatal("what is behind a mount was removed")
			}
			for _, point := range points {
				unix.Unmount(point, unix.MNT_DETACH) //nolint:errcheck // most were never mounted
			}
			if err := mounts.RemoveTree(top); err != nil {
				t.Fatal(err)
			}
		}
		if bound == 0 {
			t.Error("no race: nothing was bound")
		}
	})
}

// nest makes folders one in the other below a folder, each beside a file.
func nest(t testing.TB, dir string, depth int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	for range depth {
		if err == nil {
			err = unix.Mknodat(at, "file", unix.S_IFREG|0o644, 0)
		}
		if err == nil {
			err = unix.Mkdirat(at, "nested", 0o755)
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(at, "nested", unix.O_PATH|unix.O_DIRECTORY, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at) //nolint:errcheck // opened by path only
		at = next
	}
	unix.Close(at) //nolint:errcheck // opened by path only
}

// TestRemoveTreeNested: folders nested more deeply than a path is long, and than files
// may be open.
func TestRemoveTreeNested(t *testing.T) {
	kernels(t, func(t *testing.T) {
		top := mkdir(t, t.TempDir(), "top")
		nest(t, top, 2100)
		nest(t, mkdir(t, top, "more"), 200)
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		few := limit
		few.Cur = 256
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		err := mounts.RemoveTree(top)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if err != nil || !gone(t, top) {
			t.Errorf("left: %v", err)
		}
	})
}

// TestRemoveTreeKeepsOn: names that cannot be removed keep only the folders above them,
// also where folders are nested deeply, and names that are not text do no harm.
func TestRemoveTreeKeepsOn(t *testing.T) {
	top := mkdir(t, t.TempDir(), "top")
	odd := "\xff\x1b[31m\n"
	kept := []string{write(t, top, odd), write(t, mkdir(t, top, "b"), "immutable")}
	nest(t, top, 300)
	for i := range 2000 {
		write(t, top, fmt.Sprint(i))
	}
	others := mkdir(t, top, "z", "other")
	for _, path := range kept {
		immutable(t, path, true)
	}
	err := mounts.RemoveTree(top)
	if !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("error %v, want that it is not permitted", err)
	}
	if text := err.Error(); !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\n") {
		t.Errorf("the error has the bytes of a name: %q", text)
	}
	if !gone(t, others) {
		t.Error("another folder is left")
	}
	if entries, err := os.ReadDir(top); err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
	for _, path := range kept {
		immutable(t, path, false)
	}
	if err := mounts.RemoveTree(top); err != nil || !gone(t, top) {
		t.Errorf("left: %v", err)
	}
}

// immutable sets or takes an attribute that keeps even root from removing a file
// (ioctl_iflags(2)).
func immutable(t *testing.T, path string, on bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read only
	flags := 0
	if on {
		flags = 0x10 // FS_IMMUTABLE_FL
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Fatal(err)
	}
	if on {
		t.Cleanup(func() {
			if !gone(t, path) {
				immutable(t, path, false)
			}
		})
	}
}

func TestRemoveTreeOfLittle(t *testing.T) {
	dir := t.TempDir()
	kept := write(t, mkdir(t, dir, "kept"), "file")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "kept"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "none/below"), write(t, dir, "file"), link, mkdir(t, dir, "empty") + "/"} {
		if err := mounts.RemoveTree(path); err != nil || !gone(t, path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if gone(t, kept) {
		t.Error("a link was followed")
	}
	if err := mounts.RemoveTree(filepath.Join(kept, "below")); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("below a file: %v", err)
	}
}

// BenchmarkRemoveTree removes a folder of twenty thousand files.
func BenchmarkRemoveTree(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		top := mkdir(b, b.TempDir(), "top")
		for i := range 20_000 {
			write(b, top, fmt.Sprint(i))
		}
		b.StartTimer()
		if err := mounts.RemoveTree(top); err != nil {
			b.Fatal(err)
		}
	}
}
