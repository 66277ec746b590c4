// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/house"
)

// reach is the part of the file system that a process may open, by Landlock
// (landlock(7)), whatever capabilities it has: files, and folders with their contents,
// for reading or for reading and writing. A path is resolved once.
type reach struct{ read, write []string }

// system is what the Go runtime and the libraries read on any machine.
var system = []string{
	"/proc", "/sys", "/usr", "/lib", "/lib64", "/etc/localtime", "/etc/machine-id", "/var/lib/dbus/machine-id", "/etc/os-release",
	"/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/dev/null", "/dev/urandom",
}

// reach of a service; ok is false for one that is not confined: config and status run
// the credential plugins of the operator, podworker those of registries, nodeapi
// journalctl, each with files of its own, and volume mounts, which Landlock forbids to
// every confined process.
func (p *Plan) reach(s house.Service, program string) (r reach, ok bool) {
	switch s {
	case house.Bus, house.Pleg, house.Prober, house.Resource:
	default:
		return reach{}, false
	}
	r = reach{
		read:  append([]string{program, p.Run, bus.KeyFile(keyDir(p.State), s)}, system...),
		write: []string{filepath.Join(p.Run, string(s)), p.Paths().StateOf(s), "/dev/null"},
	}
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		r.read = append(r.read, dir)
	}
	switch s {
	case house.Bus:
		r.read = append(r.read, keyDir(p.State)) // the public keys
	case house.Resource:
		r.read = append(r.read, p.PodLogsDir)
		r.write = append(r.write, "/sys/fs/cgroup", p.RootDir) // sockets of plugins, and dra_manager_state
	}
	return r, true
}

// confined is in the environment of a process that was confined.
const confined = "SEXTANT_CONFINED"

// Confine limits a service to the part of the file system it needs, if it can do
// without the rest. Landlock confines a thread, so the program is executed once more.
// Confine returns if there is nothing to do, or with the error: on a kernel before
// 5.13, or without Landlock, a service has the limits of its unit and its uid only.
func (p *Plan) Confine(s house.Service) error {
	if os.Getenv(confined) != "" {
		return os.Unsetenv(confined)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	r, ok := p.reach(s, program)
	if !ok {
		return nil
	}
	runtime.LockOSThread() // for good if it succeeds: exec keeps this thread alone
	if err := r.restrict(); err != nil {
		runtime.UnlockOSThread() // it is not confined
		return err
	}
	return fmt.Errorf("start %s again: %w", program, syscall.Exec(program, os.Args, append(os.Environ(), confined+"="+string(s))))
}

// Rights of Landlock: reading, and all rights to change files and folders.
const (
	mayRead  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	mayWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// ofFile are the rights that a rule for a file may have.
	ofFile = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// restrict confines the calling thread. It must have given up new privileges
// (no_new_privs), as every service has.
func (r reach) restrict() error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	write := uint64(mayWrite)
	if version >= 3 {
		write |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	// Forbids moving a file to another folder: without this right (Landlock version 2)
	// no rename between folders is allowed at all.
	attr := unix.LandlockRulesetAttr{Handled_access_fs: mayRead | write}
	rules, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	defer unix.Close(int(rules)) //nolint:errcheck // of no use any more
	for paths, access := range map[*[]string]uint64{&r.read: mayRead, &r.write: mayRead | write} {
		for _, path := range *paths {
			// A path that is missing or hidden needs no rule.
			if err := allow(int(rules), path, access); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EACCES) {
				return fmt.Errorf("landlock: %s: %w", path, err)
			}
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

// allow adds a rule for a path and what is beneath it.
func allow(rules int, path string, access uint64) error {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at) //nolint:errcheck // a path only
	var is unix.Stat_t
	if err := unix.Fstat(at, &is); err != nil {
		return err
	}
	if is.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= ofFile
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(at)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
