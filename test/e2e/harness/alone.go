// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// aloneEnv tells the second process of MainAlone what it is.
const aloneEnv = "SEXTANT_TEST_ALONE"

// MainAlone is Main for programs whose places cannot be chosen: the lab has
// mounts and a network of its own. Nothing is in the directories, which need not
// exist, and what is written there is gone afterwards. There is a default route,
// which leads nowhere, and every port is free.
func MainAlone(m *testing.M, dirs ...string) {
	if os.Getenv(aloneEnv) != "" {
		if err := furnish(dirs); err != nil {
			fmt.Fprintln(os.Stderr, "harness: a machine of its own:", err)
			os.Exit(1)
		}
		Main(m)
	}
	code, err := alone(dirs)
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness: a machine of its own:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// alone runs this program again in namespaces of its own and returns its exit
// code.
func alone(dirs []string) (code int, err error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("needs root: it makes namespaces")
	}
	// What an earlier lab left is on this side.
	if err := sweep(context.Background()); err != nil {
		return 0, err
	}
	var made []string
	defer func() {
		for i := len(made) - 1; i >= 0; i-- {
			err = errors.Join(err, removeIfEmpty(made[i]))
		}
	}()
	for _, dir := range dirs {
		if made, err = mountPoint(made, dir); err != nil {
			return 0, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), aloneEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the death signal is that of the thread that forked
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// mountPoint makes a directory and adds what it made to a list, parents first.
func mountPoint(made []string, dir string) ([]string, error) {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return made, err
	}
	made, err := mountPoint(made, filepath.Dir(dir))
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil {
		return made, err
	}
	return append(made, dir), nil
}

// furnish gives the namespaces this process is in what a machine has.
func furnish(dirs []string) error {
	for _, dir := range dirs {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
		if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil { // as systemd has it
			return fmt.Errorf("share %s: %w", dir, err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 2), Mask: net.CIDRMask(24, 32)}}
	for _, step := range []func() error{
		func() error { return netlink.LinkSetUp(lo) },
		func() error { return netlink.LinkAdd(link) },
		func() error { return netlink.AddrAdd(link, address) },
		func() error { return netlink.LinkSetUp(link) },
		func() error {
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Index, Gw: net.IPv4(192, 0, 2, 1)})
		},
	} {
		if err := step(); err != nil {
			return fmt.Errorf("network: %w", err)
		}
	}
	return nil
}
