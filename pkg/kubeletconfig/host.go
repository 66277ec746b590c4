// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"io/fs"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"
)

// CgroupVersion is the version of the cgroup hierarchy that has the controllers.
type CgroupVersion string

// A hybrid host, with controllers on v1 beside an empty v2 tree, is a v1 host.
const (
	CgroupUnknown CgroupVersion = ""
	CgroupV1      CgroupVersion = "v1"
	CgroupV2      CgroupVersion = "v2"
)

// HostFacts are the facts of a machine that a configuration is checked against. Unknown
// ones are zero and not checked.
type HostFacts struct {
	Cgroup CgroupVersion
	// Swap names the active swap devices and files.
	Swap []string
	// OnlineCPUs is empty when not known.
	OnlineCPUs cpuset.CPUSet
	// NUMANodes are the numbers of the memory nodes, nil when not known.
	NUMANodes []int
}

// CheckHost reports whether a node with this configuration may start on a host
// like this. The error joins a [Problem] for each reason why not; what to do
// about it is the caller's decision.
func CheckHost(c *Config, h HostFacts) error {
	var errs field.ErrorList
	k := &c.Kubelet
	forbid := func(path, format string, args ...any) {
		errs = append(errs, field.Forbidden(at(path), fmt.Sprintf(format, args...)))
	}
	if h.Cgroup == CgroupV1 {
		if ptr.Deref(k.FailCgroupV1, true) {
			forbid("failCgroupV1", "this host uses cgroup v1, on which the kubelet does not start by default; move the host to cgroup v2 or set failCgroupV1: false")
		}
		if k.SingleProcessOOMKill != nil && !*k.SingleProcessOOMKill {
			forbid("singleProcessOOMKill", "must not be false on a host with cgroup v1, which cannot kill a cgroup as a whole")
		}
		if k.MemorySwap.SwapBehavior == "LimitedSwap" {
			forbid("memorySwap.swapBehavior", "LimitedSwap needs cgroup v2, and this host uses cgroup v1")
		}
	}
	if len(h.Swap) > 0 && ptr.Deref(k.FailSwapOn, true) {
		forbid("failSwapOn", "swap is on (%s); turn it off or set failSwapOn: false", strings.Join(h.Swap, ", "))
	}
	if cpus := c.ReservedCPUs(); h.OnlineCPUs.Size() > 0 && !cpus.IsSubsetOf(h.OnlineCPUs) {
		forbid("reservedSystemCPUs", "%s are not all online; online are %s", cpus, h.OnlineCPUs)
	}
	errs = append(errs, checkNUMA(c, h.NUMANodes)...)
	return join(problemsOf(errs, c.Origins))
}

// checkNUMA checks that memory is reserved on nodes that exist.
func checkNUMA(c *Config, nodes []int) field.ErrorList {
	var errs field.ErrorList
	if nodes == nil {
		return nil
	}
	exists := cpuset.New(nodes...)
	for i, r := range c.Kubelet.ReservedMemory {
		if !exists.Contains(int(r.NumaNode)) {
			errs = append(errs, field.NotFound(at("reservedMemory").Index(i).Child("numaNode"), r.NumaNode))
		}
	}
	return errs
}

// ReadHostFacts reads the facts from a file system rooted at "/". Files that
// are missing or make no sense leave their fact unknown.
func ReadHostFacts(files fs.FS) HostFacts {
	h := HostFacts{Swap: readSwap(files)}
	if _, err := fs.Stat(files, "sys/fs/cgroup/cgroup.controllers"); err == nil {
		h.Cgroup = CgroupV2
	} else if _, err := fs.Stat(files, "sys/fs/cgroup"); err == nil {
		h.Cgroup = CgroupV1
	}
	if set, ok := readSet(files, "sys/devices/system/cpu/online"); ok {
		h.OnlineCPUs = set
	}
	if set, ok := readSet(files, "sys/devices/system/node/online"); ok {
		h.NUMANodes = set.List()
	}
	return h
}

// readSwap lists /proc/swaps, whose first line is a heading.
func readSwap(files fs.FS) []string {
	data, err := fs.ReadFile(files, "proc/swaps")
	if err != nil {
		return nil
	}
	var out []string
	for i, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); i > 0 && len(f) > 0 {
			out = append(out, f[0])
		}
	}
	return out
}

func readSet(files fs.FS, name string) (cpuset.CPUSet, bool) {
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return cpuset.New(), false
	}
	set, err := parseCPUs(strings.TrimSpace(string(data)))
	return set, err == nil && set.Size() > 0
}
