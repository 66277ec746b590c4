// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// bootedEnv tells each process of MainBooted what it is: "cgroups", "machine", "unit" or
// "tests"; empty for the first.
const bootedEnv = "SEXTANT_TEST_BOOTED"

// BootFiles is where a booted machine has what it needs of its boot: the program, how it
// is called, the pipe that takes its output, and what was provided.
const BootFiles = "/srv"

// call is how the tests were called.
type call struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
}

// Boot is what a booted machine is given.
type Boot struct {
	// Provide is called before the boot, where there is a network; what it leaves in the
	// folder is in BootFiles.
	Provide func(dir string) error
	// Disk is the size in bytes of a disk of the machine's own, which has all that a node
	// writes (nodePaths). Zero: it writes to this machine's.
	Disk int64
}

// MainBooted is Main on a machine of its own that systemd runs: this machine's files,
// of which writes are forgotten, and processes, mounts, a network and cgroups of its
// own. The tests are a unit of it, so systemctl, journalctl and dpkg work as on any
// Debian. No unit of this machine but those of systemd and D-Bus is started.
func MainBooted(m *testing.M, b Boot) {
	if os.Getenv(bootedEnv) != "" {
		Main(m)
	}
	code, err := boot(b)
	exitBooted(code, err)
}

// bootStep is what this program does on the way to the tests of a booted machine, where
// its arguments are others; nothing in any other process.
func bootStep() {
	switch os.Getenv(bootedEnv) {
	case "cgroups":
		code, err := inCgroups()
		exitBooted(code, err)
	case "machine":
		exitBooted(0, machine())
	case "unit":
		exitBooted(0, startTests())
	}
}

func exitBooted(code int, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness: a booted machine:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// boot starts the machine and returns the tests' exit code.
func boot(b Boot) (code int, err error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("needs root: it makes namespaces")
	}
	dir, err := os.MkdirTemp("", "sxt-booted-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, name := range []string{"root", "memory", "disk", "tmp", "files"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return 0, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	wd, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	files := filepath.Join(dir, "files")
	if err := b.Provide(files); err != nil {
		return 0, err
	}
	if b.Disk > 0 {
		if err := makeDisk(filepath.Join(dir, diskImage), b.Disk); err != nil {
			return 0, err
		}
	}
	called, err := json.Marshal(call{os.Args[1:], os.Environ(), wd})
	if err != nil {
		return 0, err
	}
	if err := errors.Join(
		copyFile(filepath.Join(files, "tests"), self),
		os.WriteFile(filepath.Join(files, "call.json"), called, 0o600),
		unix.Mkfifo(filepath.Join(files, "output"), 0o600),
	); err != nil {
		return 0, err
	}
	// Both ends at once, so that the reader's does not wait for a writer.
	writes, err := os.OpenFile(filepath.Join(files, "output"), os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	reads, err := os.Open(filepath.Join(files, "output"))
	if err != nil {
		return 0, err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(os.Stdout, reads)
		copied <- err
	}()
	groups, err := ownCgroups(filepath.Base(dir))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, removeCgroups(groups)) }()
	code, err = again("cgroups", 0, append([]string{dir}, groups...)...)
	// The machine has ended, so this is the last writer of the pipe: closing it gives the
	// reader the end of file, after everything that was written.
	return code, errors.Join(err, writes.Close(), <-copied, reads.Close())
}

// again runs this program as another of the processes, with arguments of its own, and
// returns its exit code. It ends with this thread.
func again(what string, flags uintptr, args ...string) (int, error) {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), bootedEnv+"="+what)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// ownCgroups makes a cgroup of the name in each hierarchy.
func ownCgroups(name string) ([]string, error) {
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		hierarchies = []string{"/sys/fs/cgroup/cgroup.procs"} // v2 alone
	}
	var made []string
	for _, procs := range hierarchies {
		parent := filepath.Dir(procs)
		group := filepath.Join(parent, name)
		if err := os.Mkdir(group, 0o755); err != nil {
			return nil, errors.Join(err, removeCgroups(made))
		}
		made = append(made, group)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // of v1, where they begin empty
			value, err := os.ReadFile(filepath.Join(parent, file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(group, file), value, 0); err != nil {
				return nil, errors.Join(err, removeCgroups(made))
			}
		}
	}
	return made, nil
}

// removeCgroups removes cgroups without processes and all below them.
func removeCgroups(groups []string) error {
	var errs []error
	for _, group := range groups {
		var all []string
		errs = append(errs, filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, path)
			}
			return err
		}))
		for i := len(all) - 1; i >= 0; i-- {
			errs = append(errs, unix.Rmdir(all[i]))
		}
	}
	return errors.Join(errs...)
}

// inCgroups enters the machine's cgroups, so that they are the roots the machine sees.
// Its arguments are the folder of the boot and the cgroups.
func inCgroups() (int, error) {
	for _, group := range os.Args[2:] {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
			return 0, err
		}
	}
	return again("machine", unix.CLONE_NEWCGROUP|unix.CLONE_NEWPID|unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS, os.Args[1])
}

// machine is the first process of the machine until it is systemd.
func machine() error {
	dir := os.Args[1]
	root := filepath.Join(dir, "root")
	if err := mountRoot(dir, root); err != nil {
		return err
	}
	if err := uplink(); err != nil {
		return err
	}
	if err := errors.Join(unix.Sethostname([]byte("booted")), unix.Chdir(root), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH)); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	// In a container systemd does not make the mounts shared, as it does on a machine.
	// Without that, units have no credentials (LoadCredential=), and their mounts stay theirs.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share /: %w", err)
	}
	if err := writeUnits(); err != nil {
		return err
	}
	return unix.Exec("/usr/lib/systemd/systemd", []string{"systemd", "--system", "--unit=tests.target", "--log-target=journal", "--show-status=no"},
		[]string{"container=tests", "PATH=" + os.Getenv("PATH")})
}

// writeUnits leaves the machine with the units of its distribution's systemd and D-Bus,
// and the tests.
func writeUnits() error {
	const etc = "/etc/systemd/system"
	if err := os.RemoveAll(etc); err != nil {
		return err
	}
	if err := os.MkdirAll(etc, 0o755); err != nil {
		return err
	}
	// What would set up hardware or the kernel, which are not this machine's alone.
	for _, unit := range []string{
		"systemd-sysctl.service", "systemd-udevd.service", "systemd-udev-trigger.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket",
		"systemd-modules-load.service", "systemd-binfmt.service", "systemd-timesyncd.service", "systemd-random-seed.service", "systemd-remount-fs.service",
		"getty.target", "dev-hugepages.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount",
		"sys-fs-fuse-connections.mount", "proc-sys-fs-binfmt_misc.automount",
	} {
		if err := os.Symlink("/dev/null", filepath.Join(etc, unit)); err != nil {
			return err
		}
	}
	for path, text := range map[string]string{
		"/etc/fstab":                    "",
		"/etc/machine-id":               "",
		filepath.Join(etc, testsTarget): "[Unit]\nDescription=The tests and what a machine of several users has\nRequires=multi-user.target\nWants=tests.service\nAllowIsolate=yes\n",
		filepath.Join(etc, "tests.service"): `[Unit]
Description=The tests
After=multi-user.target dbus.socket systemd-logind.service
SuccessAction=exit-force
FailureAction=exit-force

[Service]
Type=exec
Environment=` + bootedEnv + `=unit
ExecStart=` + BootFiles + `/tests
StandardOutput=file:` + BootFiles + `/output
StandardError=inherit
Delegate=yes
TasksMax=infinity
LimitNOFILE=infinity
KillMode=mixed
`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const testsTarget = "tests.target"

// startTests becomes the tests, called as the first process was.
func startTests() error {
	var called call
	data, err := os.ReadFile(BootFiles + "/call.json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &called); err != nil {
		return err
	}
	if err := os.Chdir(called.Dir); err != nil {
		return err
	}
	const program = BootFiles + "/tests"
	return unix.Exec(program, append([]string{program}, called.Args...), append(called.Env, bootedEnv+"=tests"))
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// uplink gives the network namespace of this process what a machine has: a default route,
// which leads nowhere.
func uplink() error {
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
