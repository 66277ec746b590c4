// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// DefaultSandboxImage is the name under which the locally made pause image
	// is imported when the caller names no other.
	DefaultSandboxImage = "sextant.local/pause:v1"

	// SecondHandler is runc again, under a name for RuntimeClasses.
	SecondHandler = "second"

	// maxSocketPath is the longest path a Unix socket address can hold
	// (sun_path of 108 bytes with its final NUL), less the ".ttrpc" suffix that
	// containerd appends for its second socket.
	maxSocketPath = 107 - len(".ttrpc")

	// maxInterfaceName is IFNAMSIZ less the final NUL.
	maxInterfaceName = 15
)

// Config says where a private containerd lives and what it is made of. Only Dir
// is required; zero values of the rest take the defaults named with each field.
// Two configurations with different Dir never touch each other.
type Config struct {
	// Dir is the absolute directory that holds everything: configuration,
	// content, state, network definition, log, pid file. Teardown removes it.
	Dir string
	// Root is the folder of images and layers. Default Dir/root; any other is not removed
	// with Dir.
	Root string
	// Socket is the path of the CRI socket. Default Dir/containerd.sock.
	Socket string
	// SocketGID is the group that may open the socket (mode 0660).
	SocketGID int

	// BinDir is searched for containerd, ctr, the shim and runc before PATH.
	BinDir string
	// CDIDir is where it looks for CDI devices. Default: Dir/cdi.
	CDIDir string
	// CNIBinDir holds the CNI plugins. Default: BinDir/cni, /usr/lib/cni or
	// /opt/cni/bin, the first that holds a bridge plugin.
	CNIBinDir string

	// SandboxImage is the image of every pod sandbox; it must be imported with
	// ImportImage, nothing is pulled for it. Default DefaultSandboxImage.
	SandboxImage string
	// Bridge names the bridge interface. Default: sxt and a hash of Dir.
	Bridge string
	// Subnet is the pods' IPv4 range in CIDR form. Default: the first free
	// 10.x.0.0/16 from 10.88 on, kept once chosen.
	Subnet string
	// Families are those of the addresses that a pod gets, of which the IPv6 ones come from
	// a range made of Subnet. Default: IPv4.
	Families Families
	// CgroupRoots are cgroups, relative to the mount points of the hierarchies
	// ("/kubepods"), that belong to this runtime's user alone. Teardown removes
	// them once they are empty of processes.
	CgroupRoots []string
	// SystemdCgroup makes runc ask systemd for cgroups instead of writing them.
	SystemdCgroup bool

	// StatsPeriod is how often containerd reads the CPU time of all containers and sandboxes,
	// whether anybody asks for it or not, as a Go duration. Default: its own, a second.
	// Those before 2.3 do not.
	StatsPeriod string

	// LogLevel is containerd's level. Default "info".
	LogLevel string
	// Logger receives progress; nil discards it.
	Logger *slog.Logger
}

// Families are the IP families of pods.
type Families string

// The families there are; of two, which one comes first is a node agent's choice.
const (
	IPv4      Families = ""
	DualStack Families = "dual-stack"
	IPv6      Families = "IPv6"
)

// withDefaults fills what the caller left open and reports the first field that
// cannot work.
func (c Config) withDefaults() (Config, error) {
	if !filepath.IsAbs(c.Dir) || filepath.Clean(c.Dir) == "/" {
		return c, fmt.Errorf("invalid Dir: %q is not an absolute directory below the root", c.Dir)
	}
	c.Dir = filepath.Clean(c.Dir)
	if c.Socket == "" {
		c.Socket = filepath.Join(c.Dir, "containerd.sock")
	}
	if len(c.Socket) > maxSocketPath {
		return c, fmt.Errorf("invalid Socket: %q has %d bytes, a Unix socket path holds %d", c.Socket, len(c.Socket), maxSocketPath)
	}
	if c.SandboxImage == "" {
		c.SandboxImage = DefaultSandboxImage
	}
	if c.Bridge == "" {
		c.Bridge = "sxt" + shortHash(c.Dir)
	}
	if len(c.Bridge) > maxInterfaceName || strings.ContainsAny(c.Bridge, "/ \t") {
		return c, fmt.Errorf("invalid Bridge: %q is no interface name of at most %d characters", c.Bridge, maxInterfaceName)
	}
	if c.Subnet != "" {
		p, err := netip.ParsePrefix(c.Subnet)
		if err != nil {
			return c, fmt.Errorf("invalid Subnet: %w", err)
		}
		if !p.Addr().Is4() || p.Bits() > 30 {
			return c, fmt.Errorf("invalid Subnet: %q is no IPv4 range with room for pods", c.Subnet)
		}
		c.Subnet = p.Masked().String()
	}
	for _, r := range c.CgroupRoots {
		if !strings.HasPrefix(r, "/") || filepath.Clean(r) != r || r == "/" {
			return c, fmt.Errorf("invalid CgroupRoots: %q is no clean path below the root cgroup", r)
		}
	}
	if c.LogLevel == "" {
		c.LogLevel = "info"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func (c Config) root() string        { return cmp.Or(c.Root, filepath.Join(c.Dir, "root")) }
func (c Config) state() string       { return filepath.Join(c.Dir, "state") }
func (c Config) configFile() string  { return filepath.Join(c.Dir, "config.toml") }
func (c Config) cniConfDir() string  { return filepath.Join(c.Dir, "cni", "net.d") }
func (c Config) cniDataDir() string  { return filepath.Join(c.Dir, "cni", "data") }
func (c Config) cdiDir() string      { return cmp.Or(c.CDIDir, filepath.Join(c.Dir, "cdi")) }
func (c Config) certsDir() string    { return filepath.Join(c.Dir, "certs.d") }
func (c Config) pidFile() string     { return filepath.Join(c.Dir, "containerd.pid") }
func (c Config) logFile() string     { return filepath.Join(c.Dir, "containerd.log") }
func (c Config) markerFile() string  { return filepath.Join(c.Dir, "runtime.json") }
func (c Config) networkName() string { return c.Bridge }

// binaries are the absolute paths of the programs a runtime is made of.
type binaries struct {
	containerd, ctr, runc, shim, cniDir string
}

// findBinaries resolves every program and names the missing one.
func (c Config) findBinaries() (binaries, error) {
	var b binaries
	var errs []error
	look := func(name string) string {
		if c.BinDir != "" {
			if p := filepath.Join(c.BinDir, name); isExecutable(p) {
				return p
			}
		}
		p, err := exec.LookPath(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("find %s: %w", name, err))
		}
		return p
	}
	b.containerd, b.ctr = look("containerd"), look("ctr")
	b.runc, b.shim = look("runc"), look("containerd-shim-runc-v2")
	dirs := []string{c.CNIBinDir}
	if c.CNIBinDir == "" {
		dirs = []string{"/usr/lib/cni", "/opt/cni/bin"}
		if c.BinDir != "" {
			dirs = append([]string{filepath.Join(c.BinDir, "cni")}, dirs...)
		}
	}
	for _, d := range dirs {
		if isExecutable(filepath.Join(d, "bridge")) {
			b.cniDir = d
			break
		}
	}
	if b.cniDir == "" {
		errs = append(errs, fmt.Errorf("find CNI plugins: no bridge plugin in %s", strings.Join(dirs, ", ")))
	}
	return b, errors.Join(errs...)
}

func isExecutable(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

func shortHash(s string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return fmt.Sprintf("%08x", h.Sum32())
}
