// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/test/uids"
)

// as says what the test's binary is, beside a test.
const as = "SEXTANT_TEST_AS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(as); dir != "" {
		if err := tryAll(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tryAll is what a service that was taken over tries. It was confined to dir/own, and
// may read dir/shared.
func tryAll(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "own")); err != nil {
		return err
	}
	var all []error
	want := func(what string, err error, denied bool) {
		if errors.Is(err, fs.ErrPermission) != denied || err != nil && !denied {
			all = append(all, fmt.Errorf("%s: %v", what, err))
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	_, err := os.ReadFile(in("secret"))
	want("read a file of root's", err, true)
	_, err = os.ReadFile(filepath.Join(in("own"), "link"))
	want("read it by a link", err, true)
	_, err = os.Stat(in("secret"))
	want("look at a file of root's", err, false)
	var disk unix.Statfs_t
	want("how full a disk is", unix.Statfs(dir, &disk), false)
	_, err = os.ReadDir(dir)
	want("list a folder", err, true)
	want("write a file", os.WriteFile(in("new"), nil, 0o600), true)
	want("replace a file", os.Rename(filepath.Join(in("own"), "link"), in("secret")), true)
	_, err = os.ReadFile(in("shared/file"))
	want("read what is shared", err, false)
	want("change what is shared", os.WriteFile(in("shared/file"), nil, 0o600), true)
	_, err = os.ReadFile("/proc/self/status")
	want("read of itself", err, false)
	own := filepath.Join(in("own"), "new")
	want("write a file of its own", os.WriteFile(own, []byte("x"), 0o600), false)
	want("give it another name", os.Rename(own, own+"2"), false)
	want("make it shorter", os.Truncate(own+"2", 0), false)
	want("remove it", os.Remove(own+"2"), false)
	return errors.Join(all...)
}

// TestConfined: CAP_DAC_OVERRIDE opens every file of the node, also where a mount is
// read-only. A process that is confined has it for what it may reach.
func TestConfined(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to hand on a capability")
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 {
		t.Skipf("this kernel has no Landlock: %v", errno)
	}
	dir := uids.Folder(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, folder := range []string{"own", "shared"} {
		if err := os.Mkdir(in(folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"secret", "shared/file"} {
		if err := os.WriteFile(in(file), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", in("own/link")); err != nil {
		t.Fatal(err)
	}
	program := in("program")
	data, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := reach{read: append([]string{program, in("shared"), in("not there")}, system...), write: []string{in("own")}}
	run := func(confine bool) (said string, err error) {
		var out bytes.Buffer
		cmd := exec.Command(program)
		cmd.Env = []string{as + "=" + dir}
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64206, Gid: 64206}, AmbientCaps: []uintptr{unix.CAP_DAC_OVERRIDE}}
		done := make(chan error)
		go func() { // on a thread that ends with it
			runtime.LockOSThread()
			err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
			if err == nil && confine {
				err = r.restrict()
			}
			if err == nil {
				err = cmd.Run()
			}
			done <- err
		}()
		err = <-done
		return out.String(), err
	}
	if said, err := run(true); err != nil {
		t.Errorf("confined: %v\n%s", err, said)
	}
	// Without, each of them succeeds: that is what the capability is.
	if err := errors.Join(os.MkdirAll(in("own"), 0o700), os.WriteFile(in("secret"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if said, err := run(false); err == nil || !strings.Contains(said, "read a file of root's: <nil>") {
		t.Errorf("not confined: %v\n%s", err, said)
	}
}
