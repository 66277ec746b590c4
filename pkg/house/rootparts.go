// SPDX-License-Identifier: Apache-2.0

package house

import "slices"

// RootPart is a part of the supervisor that systemd runs as a unit of its own,
// sextant-<part>.service, with a version of its own. It is root: it has no account,
// no feed, no state and no key of the bus. What a service may ask of it stands in the
// table of methods, and what its unit leaves it in the owner table of
// docs/architecture.md. Where `sextant up` runs the node, one process is all of them.
type RootPart string

// The parts of the supervisor.
const (
	// Prepare lays out folders, keys and the plan, and ends.
	Prepare RootPart = "prepare"
	// Gate passes on what resource and podworker may ask of systemd and logind, and
	// ends commands and what pods leave in their cgroups.
	Gate RootPart = "gate"
	// Tools runs the distribution's tools for network storage.
	Tools RootPart = "tools"
)

var rootParts = []RootPart{Prepare, Gate, Tools}

// RootParts lists the parts of the supervisor in start order.
func RootParts() []RootPart { return slices.Clone(rootParts) }

// Unit is the name of the systemd unit that runs the part.
func (p RootPart) Unit() string { return "sextant-" + string(p) + ".service" }
