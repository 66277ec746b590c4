// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// Flavor chooses the runtime whose version-dependent behaviour is shown.
type Flavor int

const (
	// Containerd2 has container events and RuntimeConfig, and finds nothing
	// wrong with stopping what does not exist.
	Containerd2 Flavor = iota
	// Containerd16 is what Debian 12 ships: no container events, no
	// RuntimeConfig, and StopContainer and StopPodSandbox answer NotFound.
	Containerd16
)

func (f Flavor) String() string {
	switch f {
	case Containerd2:
		return "containerd 2"
	case Containerd16:
		return "containerd 1.6"
	}
	return fmt.Sprintf("Flavor(%d)", int(f))
}

// Config describes a Runtime. The zero value is a working one.
type Config struct {
	// Socket is the path of the Unix socket; empty for a new one in a
	// directory of its own, removed at the end of Run.
	Socket string
	Flavor Flavor
	// Clock drives scripts, stop timeouts, pull times and timestamps; nil for
	// the real one. Each script that sleeps is one waiter of the clock.
	Clock clock.Clock
	// Images are on the node from the start.
	Images []Image
	// Handlers are the names of runtime handlers beside the default "".
	Handlers []string
	// SandboxImage is what the verbose status names as the image of sandboxes.
	SandboxImage string
	// PodCIDR is what pod addresses come from; 10.88.0.0/16 if invalid (zero).
	PodCIDR netip.Prefix
	// Delay makes every unary call take this long on Clock.
	Delay time.Duration
	// CgroupDriver is what RuntimeConfig tells. Its zero value is SYSTEMD.
	CgroupDriver runtimeapi.CgroupDriver
	// Ports are what the pods serve, each connection in a goroutine of its own;
	// to any other port connections are refused.
	Ports map[int32]func(io.ReadWriteCloser)
}

// complete fills the defaults in.
func (c Config) complete() (Config, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if !c.PodCIDR.IsValid() {
		c.PodCIDR = netip.MustParsePrefix("10.88.0.0/16")
	}
	c.PodCIDR = c.PodCIDR.Masked()
	if c.Flavor != Containerd2 && c.Flavor != Containerd16 {
		return c, fmt.Errorf("fakecri: config: flavor: unknown value %d", int(c.Flavor))
	}
	return c, nil
}

// Image is an image in the registry or on the node.
type Image struct {
	// Ref is the name, completed as containerd does: "busybox" is
	// "docker.io/library/busybox:latest". A digest reference has no tag.
	Ref string
	// ID is "sha256:<hex>"; empty for one made from Ref. Images with the same
	// ID are one image with several names.
	ID string
	// Size in bytes; 0 for 1 MiB.
	Size uint64
	// UID and Username are the user of the image config, at most one of them.
	UID      *int64
	Username string
	Pinned   bool
	// Login, if set, is the user name and password a pull must present.
	Login *runtimeapi.AuthConfig
	// Script is the program of a container that names no command; empty for a
	// well-behaved server, which runs until TERM and then exits 0.
	Script string
	// Programs are executables of this image beside the shell's: name → script.
	Programs map[string]string
}
