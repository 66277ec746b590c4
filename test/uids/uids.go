// SPDX-License-Identifier: Apache-2.0

// Package uids has tests act as another uid, for what root does in a folder that
// belongs to somebody else.
package uids

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// protections are the settings of the kernel that keep links in folders of others
// from being followed (proc_sys_fs(5)).
var protections = []string{"symlinks", "hardlinks", "regular", "fifos"}

// Each runs a test twice as root: with the kernel's protection of links off, and as
// Debian sets it. Processes that use it wait for each other.
func Each(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to act as another uid")
	}
	file := func(name string) string { return "/proc/sys/fs/protected_" + name }
	lock, err := os.Open(file(protections[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	set := func(values string) {
		t.Helper()
		for i, value := range strings.Fields(values) {
			if err := os.WriteFile(file(protections[i]), []byte(value), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var before []string
	for _, name := range protections {
		value, err := os.ReadFile(file(name))
		if err != nil {
			t.Fatal(err)
		}
		before = append(before, string(value))
	}
	defer set(strings.Join(before, " "))
	for _, values := range []string{"0 0 0 0", "1 1 2 1"} {
		set(values)
		t.Run("protected "+values, test)
	}
}

// Folder is a temporary folder that every uid may pass through and list.
func Folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for at := dir; strings.HasPrefix(at, os.TempDir()+"/"); at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// As runs f as a uid that has no rights, on a thread of its own, and returns what f
// does.
func As(uid uint32, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		result <- drop(uid, f)
	}()
	return <-result
}

func drop(uid uint32, f func() error) error {
	// These are the thread's alone; those of package syscall are the process's.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
		if _, _, errno := unix.RawSyscall(call, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			return fmt.Errorf("uid %d: %w", uid, errno)
		}
	}
	return f()
}

// During repeats attack as another uid from before f until after it. attack returns
// quickly; that it fails is its own affair.
func During(t *testing.T, uid uint32, attack, f func()) {
	t.Helper()
	began, stop, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- As(uid, func() error {
			attack()
			close(began)
			for {
				select {
				case <-stop:
					return nil
				default:
					attack()
				}
			}
		})
	}()
	select {
	case <-began:
	case err := <-ended:
		t.Fatal(err)
	}
	defer func() { // also when f fails the test
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	f()
}

// Owner is the uid a file belongs to; links are not followed.
func Owner(t *testing.T, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return st.Uid
}
