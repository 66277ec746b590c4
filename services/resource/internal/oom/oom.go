// SPDX-License-Identifier: Apache-2.0

// Package oom decides what a process that the kernel killed for want of memory means to
// the node. It is pure.
package oom

import (
	"fmt"
	"strings"

	"github.com/sextant-node/sextant/services/resource/internal/usage"
)

// Reason of the event of the node about a Machine kill, the kubelet's.
const Reason = "SystemOOM"

// Kill is a process that the kernel killed.
type Kill struct {
	Process string
	PID     int32
	// Machine: no memory was left on the machine; else a cgroup reached its limit.
	Machine bool
	// Cgroup of the process and the one whose Limit was reached, from the root of the
	// hierarchy; empty if the kernel did not say.
	Cgroup, Limit string
}

// Pod is one with a cgroup of its own.
type Pod struct{ UID, Namespace, Name, Cgroup string }

// Verdict is what a kill means.
type Verdict struct {
	// Scope is "node", "pod" or "other", what the metric counts.
	Scope string
	// Event is the message of the node's event, empty for none. As in the kubelet, there
	// is one when memory ran out for the machine and none when a cgroup reached its limit.
	Event string
	// Pod whose process was killed, whatever was short of memory; nil for none of the
	// node's.
	Pod *Pod
	// Container is the ID of the one that it was in; empty when it was in none, or the
	// kernel did not say.
	Container string
}

// Judge a kill on a node with these pods.
func Judge(k Kill, pods []Pod) Verdict {
	v := Verdict{Scope: "other"}
	for i := range pods {
		rest, inside := strings.CutPrefix(k.Cgroup, pods[i].Cgroup)
		if pods[i].Cgroup == "" || !inside || rest != "" && rest[0] != '/' {
			continue
		}
		folder, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		v.Scope, v.Pod = "pod", &pods[i]
		if id, ok := usage.ContainerID(folder); ok {
			v.Container = id
		}
	}
	if k.Machine || k.Limit == "/" {
		v.Scope, v.Event = "node", "System OOM encountered"
		if k.Process != "" && k.PID != 0 {
			v.Event = fmt.Sprintf("%s, victim process: %s, pid: %d", v.Event, k.Process, k.PID)
		}
	}
	return v
}
