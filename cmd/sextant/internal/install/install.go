// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/deb"
	"github.com/sextant-node/sextant/pkg/file"
)

// Request is what to install and where.
type Request struct {
	// Package is the Debian package in the image, Version what it installs.
	Package, Version string
	// Migrate makes kubelet.service Sextant as well.
	Migrate bool
	Out     io.Writer

	// root is the machine's root folder; empty for /.
	root string
}

// at is where a path of the machine is.
func (r *Request) at(path string) string { return filepath.Join("/", r.root, path) }

const (
	// mounts is the mount namespace of the machine's first process.
	mounts = "/proc/1/ns/mnt"
	// installed has the version that the machine has.
	installed = "/usr/lib/sextant/version"
	// unfinished is a link to the version of an installation that has not come to its end:
	// the files come first, and what they need to run afterwards may fail.
	unfinished = "/usr/lib/sextant/.installing"
	// defaults is the administrator's.
	defaults = "/etc/default/sextant"
	searched = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Run installs the package on the machine. The calling goroutine's thread enters the
// machine's mount namespace and ends with it.
func Run(ctx context.Context, r Request) error {
	pack, err := os.Open(r.Package)
	if err != nil {
		return fmt.Errorf("the package of this image: %w", err)
	}
	defer pack.Close() //nolint:errcheck // only read
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: no other goroutine may run on it
		err := enter()
		if err == nil {
			err = r.onMachine(ctx, pack)
		}
		done <- err
	}()
	return <-done
}

// enter has this thread see the machine's files.
func enter() error {
	ns, err := os.Open(mounts)
	if err != nil {
		return err
	}
	defer ns.Close() //nolint:errcheck // only read
	own, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	if machine, err := os.Readlink(mounts); err != nil || machine == own {
		return errors.Join(err, errors.New("this is no container with the machine's processes: it needs hostPID and privileged; on a machine itself use its package"))
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the machine's mount namespace: %w (the container has to be privileged)", err)
	}
	return unix.Chdir("/")
}

// onMachine installs what the machine does not have yet.
func (r *Request) onMachine(ctx context.Context, pack *os.File) error {
	before, err := os.ReadFile(r.at(installed))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	former := strings.TrimSpace(string(before))
	_, err = os.Readlink(r.at(unfinished))
	if former == r.Version && errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(r.Out, "version %s is installed already\n", former)
	} else if err := r.installs(ctx, pack, former); err != nil {
		return err
	}
	if !r.Migrate {
		return nil
	}
	return r.command(ctx, r.at("/usr/bin/sextant"), "migrate")
}

// installs installs the package. What has begun comes to its end, whatever ends ctx: a
// package manager that is killed in the middle has to be repaired by hand.
func (r *Request) installs(ctx context.Context, pack *os.File, former string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.at(unfinished)), 0o755); err != nil {
		return err
	}
	if err := file.Link(r.at(unfinished), r.Version); err != nil {
		return err
	}
	by := r.byHand
	if file.Exists(r.at("/usr/bin/dpkg")) && file.Exists(r.at("/var/lib/dpkg/status")) {
		by = r.byDpkg
	}
	if err := by(context.WithoutCancel(ctx), pack, former); err != nil {
		return err
	}
	return os.Remove(r.at(unfinished))
}

// byDpkg leaves a package to the machine's dpkg.
func (r *Request) byDpkg(ctx context.Context, pack *os.File, _ string) error {
	dir, err := os.MkdirTemp(r.at("/run"), "sextant-install-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is gone after the next boot
	copied := filepath.Join(dir, "sextant.deb")
	info, err := pack.Stat()
	if err != nil {
		return err
	}
	if err := write(copied, io.NewSectionReader(pack, 0, info.Size()), 0o600); err != nil {
		return err
	}
	return r.command(ctx, r.at("/usr/bin/dpkg"), "--install", copied)
}

// byHand unpacks a package on a machine without dpkg, and runs its script.
func (r *Request) byHand(ctx context.Context, pack *os.File, former string) error {
	fmt.Fprintln(r.Out, "there is no dpkg here: the package is unpacked, and no package manager knows of it")
	if err := unpack(pack, r.at("/"), func(path string) bool { return path == defaults }); err != nil {
		return err
	}
	text, err := deb.File(pack, deb.Control, "/postinst")
	if err != nil {
		return err
	}
	configure := exec.CommandContext(ctx, "/bin/sh", "-s", "--", "configure", former)
	configure.Stdin = strings.NewReader(string(text))
	return r.run(configure)
}

func (r *Request) command(ctx context.Context, program string, args ...string) error {
	return r.run(exec.CommandContext(ctx, program, args...))
}

func (r *Request) run(cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr = r.Out, r.Out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // migrate goes back
	cmd.Env = []string{searched, "HOME=/root", "DEBIAN_FRONTEND=noninteractive"}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return nil
}
