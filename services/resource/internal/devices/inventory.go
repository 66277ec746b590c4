// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"slices"
	"time"
)

// Grace is how long a plugin may be away before its resource counts as gone (the kubelet's
// endpointStopGracePeriod).
const Grace = 5 * time.Minute

// Confirm is how long after a start the devices of a plugin that has not registered since
// are counted: those who ask for capacity do not see it fall and rise with each restart of
// this process. A kubelet counts none from its start on.
const Confirm = time.Minute

// State of a resource's plugin.
type State string

// The states of a resource:
//
//	                        ┌─no answer─► hung ──┐
//	                        │  ◄──answers─┘      │
//	(checkpoint) ─► away ─► serving ─────────────┴─stream ends─► away ─Grace─► gone
//	                   registers ▲                                 │             │
//	                             └─────────────registers───────────┴─────────────┘
const (
	// Serving: its devices are those of the last ListAndWatch message.
	Serving State = "serving"
	// Away: the plugin has not registered since the start of this process, or its stream has
	// ended, less than Grace ago. Pods that ask for the resource wait.
	Away State = "away"
	// Hung: its plugin has not answered a call in time. Pods that ask for the resource wait
	// until it answers, or another instance has registered and listed its devices.
	Hung State = "hung"
	// Gone: it has been away for Grace.
	Gone State = "gone"
)

// Device is one device of a resource.
type Device struct {
	ID      string
	Healthy bool
	// NUMA: the plugin says which NUMA nodes it is near to; they may be none.
	NUMA  bool
	Nodes []int
}

// near reports whether a device is near one of the nodes that in accepts.
func (d Device) near(in func(node int) bool) bool { return slices.ContainsFunc(d.Nodes, in) }

// Resource is what the plugin of an extended resource offers.
type Resource struct {
	State State
	// Since is when it came to be in this state.
	Since time.Time
	// Why it is not serving, in words.
	Why     string
	Devices map[string]Device
	// Kept: its devices are of the kubelet's file, and no plugin has confirmed them.
	Kept bool
	// Prefers: the plugin answers GetPreferredAllocation. Prestarts: it wants
	// PreStartContainer before each start of a container.
	Prefers, Prestarts bool
}

// Counts are the capacity and what of it is healthy.
func (r *Resource) Counts() (capacity, allocatable int) {
	if r.State == Gone {
		return 0, 0
	}
	for _, d := range r.Devices {
		if d.Healthy && r.State != Away {
			allocatable++
		}
	}
	return len(r.Devices), allocatable
}

// Inventory is all resources, by name. It is not changed once it was given away.
type Inventory map[string]*Resource
