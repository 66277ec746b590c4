// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
)

// host is what a container's configuration takes from the machine. It does not
// change while the machine runs, so each is read once.
type host struct {
	thermalThrottle func() []string
	hugePageSizes   func() []string
	swap1, swap2    func() bool
	selinux         func() bool
}

func newHost() *host {
	return &host{
		thermalThrottle: sync.OnceValue(func() []string {
			paths, _ := filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle") // a constant pattern is never bad
			return paths
		}),
		hugePageSizes: sync.OnceValue(cgroups.HugePageSizes),
		swap1:         sync.OnceValue(func() bool { return exists("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes") }),
		swap2: sync.OnceValue(func() bool {
			own, err := os.ReadFile("/proc/self/cgroup")
			if err != nil {
				return false
			}
			for line := range bytes.Lines(own) {
				if path, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "0::"); ok {
					return exists(filepath.Join("/sys/fs/cgroup", path, "memory.swap.max"))
				}
			}
			return false
		}),
		selinux: sync.OnceValue(func() bool { return exists("/sys/fs/selinux/enforce") }),
	}
}

// swapController reports whether the kernel accounts swap.
func (h *host) swapController(v2 bool) bool {
	if v2 {
		return h.swap2()
	}
	return h.swap1()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
