// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// Facts are what is known of a node.
type Facts struct {
	// Source is where the kubelet's flags were found.
	Source string `json:"source"`
	// Agent is what runs the node; zero for nothing.
	Agent Agent `json:"agent,omitzero"`
	// Node is the name of the node, empty when the configuration cannot be read.
	Node string `json:"node,omitempty"`
	// Problems of flags and configuration files; with one the node does not start.
	Problems []string                `json:"problems,omitempty"`
	Warnings []kubeletconfig.Warning `json:"warnings,omitempty"`
	Runtime  Runtime                 `json:"runtime,omitzero"`
	// Systemd is the version of the systemd that runs the machine, 0 for none.
	Systemd int    `json:"systemd,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
	Cgroup  string `json:"cgroup,omitempty"`
	// Ports that are taken.
	Ports     []Port     `json:"ports,omitempty"`
	Disks     []Disk     `json:"disks,omitempty"`
	Accounts  []Account  `json:"accounts,omitempty"`
	Manifests []Manifest `json:"manifests,omitempty"`
	Pods      []Pod      `json:"pods,omitempty"`
	// FlexVolume are the plugins of that kind that are installed (volumePluginDir).
	FlexVolume []string `json:"flexVolume,omitempty"`
	// Unread is what could not be read.
	Unread []Unread `json:"unread,omitempty"`
}

// Agent is a running node agent.
type Agent struct {
	PID int `json:"pid,omitempty"`
	// Sextant: it is this program.
	Sextant bool `json:"sextant,omitempty"`
}

// Runtime is the container runtime at the endpoint that the kubelet uses.
type Runtime struct {
	Endpoint string `json:"endpoint"`
	Name     string `json:"name,omitempty"`
	Version  string `json:"version,omitempty"`
	// Ready and Network are why the runtime and its network are not ready; empty when
	// they are.
	Ready   string `json:"ready,omitempty"`
	Network string `json:"network,omitempty"`
	// Error is why it could not be asked.
	Error string `json:"error,omitempty"`
	// Refused is why podworker's account may not open the socket.
	Refused string `json:"refused,omitempty"`
	// Static are the pods of manifest files that run, namespace/name.
	Static []string `json:"static,omitempty"`
}

// Port is an address that the node agent will listen on and that is taken.
type Port struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Error   string `json:"error"`
}

// Disk is the file system of a folder.
type Disk struct {
	Path string `json:"path"`
	// Free bytes for root.
	Free uint64 `json:"free"`
}

// Account is a uid that Sextant's services will have and that another account has.
type Account struct {
	UID  uint32 `json:"uid"`
	Name string `json:"name"`
}

// Manifest is a file of the folder of static pods of which something is to be said.
type Manifest struct {
	Path string `json:"path"`
	// Problem is why it holds no usable pod.
	Problem string `json:"problem,omitempty"`
	// Ignored is what of it has no effect.
	Ignored string `json:"ignored,omitempty"`
}

// Pod is a pod of the node of which something is to be said.
type Pod struct {
	Name string `json:"name"` // namespace/name
	// Volumes that are not made, with the reason.
	Volumes []string `json:"volumes,omitempty"`
}

// Unread is something that could not be read.
type Unread struct {
	What  string `json:"what"`
	Error string `json:"error"`
}
