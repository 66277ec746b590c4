// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// processes counts a cgroup's own, not those of cgroups below; threads are
// counted with those below, by the kernel.
func processes(src Source) *resourcev1.ProcessUsage {
	return &resourcev1.ProcessUsage{Threads: value(src, "pids", "pids.current"), ThreadsMax: ptr.Deref(bound(src, "pids", "pids.max"), 0)}
}

// ParsePIDs reads cgroup.procs.
func ParsePIDs(text []byte) []int {
	var all []int
	for line := range bytes.Lines(text) {
		if pid, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil && pid > 0 {
			all = append(all, pid)
		}
	}
	return all
}

// ParseOpenFilesLimit finds the soft limit of open files in /proc/PID/limits, -1
// for unlimited.
func ParseOpenFilesLimit(text []byte) (int64, bool) {
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte("Max open files"))
		if !ok {
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			return 0, false
		}
		if string(fields[0]) == "unlimited" {
			return -1, true
		}
		n, err := strconv.ParseInt(string(fields[0]), 10, 64)
		return n, err == nil
	}
	return 0, false
}

// ParseInterfaces reads /proc/PID/net/dev, without interfaces that carry only
// the node's own or other pods' traffic (cAdvisor's rule).
func ParseInterfaces(text []byte) []*resourcev1.NetworkInterface {
	var all []*resourcev1.NetworkInterface
	for line := range bytes.Lines(text) {
		before, after, ok := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(after)
		if !ok || len(fields) < 12 {
			continue
		}
		name := string(bytes.TrimSpace(before))
		if ignored(name) {
			continue
		}
		var n [12]uint64
		for i := range n {
			n[i], _ = parse(fields[i])
		}
		// bytes packets errs drop fifo frame compressed multicast, then the same
		// for what was sent
		all = append(all, &resourcev1.NetworkInterface{
			Name: name, RxBytes: n[0], RxPackets: n[1], RxErrors: n[2], RxDropped: n[3],
			TxBytes: n[8], TxPackets: n[9], TxErrors: n[10], TxDropped: n[11],
		})
	}
	return all
}

func ignored(name string) bool {
	return slices.ContainsFunc([]string{"lo", "veth", "docker", "nerdctl"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// ContainerID is the container a cgroup below a pod's belongs to, by the
// folder's name: the id itself, or the scope a runtime asks systemd for.
func ContainerID(folder string) (id string, ok bool) {
	id = folder
	if scope, found := strings.CutSuffix(folder, ".scope"); found {
		// "cri-containerd-ID", "crio-ID", "crio-conmon-ID"
		at := strings.LastIndexByte(scope, '-')
		if at < 0 || strings.Contains(scope[:at], "conmon") {
			return "", false
		}
		id = scope[at+1:]
	}
	const shortest = 32 // runtimes use 64 hexadecimal digits
	if len(id) < shortest || strings.Trim(id, "0123456789abcdef") != "" {
		return "", false
	}
	return id, true
}
