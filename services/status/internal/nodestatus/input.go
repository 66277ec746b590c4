// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// KubeletVersion is the Kubernetes node API level that this node implements, in the
// form version-skew checks read: a semantic version; build metadata has no rank.
const KubeletVersion = kubeletconfig.Release + "+sextant"

// Major and Minor of KubeletVersion.
const Major, Minor = "1", "36"

const (
	// Grace is how long a part of the node may be away before the node is not
	// ready: the kubelet's limit for its pod lifecycle event generator.
	Grace = 3 * time.Minute
	// runtimeGrace is how long the container runtime may not answer.
	runtimeGrace = 30 * time.Second
	// maxNames is how many names of an image are listed.
	maxNames = 5
)

// Input is everything a rendering depends on.
type Input struct {
	// Name of the node.
	Name string
	// Old is the status to start from: the API server's, else the journaled one.
	Old v1.NodeStatus
	// Started is when this process began to look.
	Started time.Time
	Now     time.Time

	// Runtime is nil while nothing is known of it since Started.
	Runtime *Runtime
	// Resources is nil while nothing is known of them since Started.
	Resources *Resources
	// Sources of pods; nil while nothing is known of them since Started.
	Sources []Source
	// Away lists the parts of the node that do not answer.
	Away []Away
	// CSINode says why the CSINode object is not as it should be; empty when it is, or
	// when there is none to be.
	CSINode string
	// ShuttingDown: the node is on its way down; nil while nothing is known of that
	// since Started.
	ShuttingDown *bool
	// Addresses as decided by Addresses.
	Addresses []v1.NodeAddress
	// Images is nil while nothing is known of them since Started.
	Images []Image
	// VolumesInUse are sorted; nil while nothing is known of them since Started.
	VolumesInUse []v1.UniqueVolumeName
	// MaxImages is nodeStatusMaxImages; negative for no limit.
	MaxImages int
	// Port of the node's HTTPS API.
	Port int32
	// Features are the declared features, sorted.
	Features []string
	// EphemeralStorage: the node tells its local storage (localStorageCapacityIsolation).
	EphemeralStorage bool
}

// Runtime is the container runtime as pleg sees it.
type Runtime struct {
	Name, Version string
	Responding    bool
	// Since when it does, or does not, respond.
	Since time.Time
	Error string
	// Asked: the runtime has answered a status request at least once.
	Asked      bool
	Conditions []RuntimeCondition
	Handlers   []v1.NodeRuntimeHandler
	// SupplementalGroupsPolicy is nil where the runtime does not tell.
	SupplementalGroupsPolicy *bool
}

// RuntimeCondition is one condition of the runtime's own.
type RuntimeCondition struct {
	Type            string
	Status          bool
	Reason, Message string
}

// Resources is what resource says the node has.
type Resources struct {
	Capacity, Allocatable             v1.ResourceList
	MachineID, SystemUUID, BootID     string
	KernelVersion, OSImage            string
	OperatingSystem, Architecture     string
	SwapCapacity                      int64
	MemoryPressure, DiskPressure, PID bool
	// ClaimDrivers are the node's drivers of resource claims, sorted; nil while they are not
	// known. Of the Node's status they are no part.
	ClaimDrivers []string
}

// Source is one origin of pods.
type Source struct {
	Name     string
	Complete bool
	// Since when it is not complete; it begins with each process of config.
	Since time.Time
}

// Away is a part of the node that does not answer.
type Away struct {
	Service string
	Since   time.Time
}

// Image is one image the runtime stores.
type Image struct {
	Names []string
	Bytes int64
}
