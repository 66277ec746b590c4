// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Capability is a capability of Linux by its number (capabilities(7)).
type Capability uintptr

// The capabilities that services of the house have.
const (
	Chown         Capability = unix.CAP_CHOWN
	DacOverride   Capability = unix.CAP_DAC_OVERRIDE
	DacReadSearch Capability = unix.CAP_DAC_READ_SEARCH
	Fowner        Capability = unix.CAP_FOWNER
	Fsetid        Capability = unix.CAP_FSETID
	SysAdmin      Capability = unix.CAP_SYS_ADMIN
)

var capabilityNames = map[Capability]string{
	Chown: "CAP_CHOWN", DacOverride: "CAP_DAC_OVERRIDE", DacReadSearch: "CAP_DAC_READ_SEARCH",
	Fowner: "CAP_FOWNER", Fsetid: "CAP_FSETID", SysAdmin: "CAP_SYS_ADMIN",
}

// String is the name that capabilities(7) and systemd use.
func (c Capability) String() string {
	if name, ok := capabilityNames[c]; ok {
		return name
	}
	return fmt.Sprintf("CAP_%d", uintptr(c))
}

// Rights are what a service's process may do beyond what its uid may.
type Rights struct {
	Capabilities []Capability
	// Groups it is in, where the node has them.
	Groups []string
	// RuntimeSocket: it is in the group of the container runtime's socket.
	RuntimeSocket bool
	// Gate is the name of the socket, in the service's folder of the run
	// directory, behind which is what it may ask of the system bus; empty for none.
	Gate string
}

// rights of those that have any. The supervisor, the systemd units (test/units)
// and docs/architecture.md say the same.
var rights = map[Service]Rights{
	// The operator's files are root's: manifests, kubeconfigs, keys (decision 0008).
	Config:    {Capabilities: []Capability{DacReadSearch}},
	PodWorker: {RuntimeSocket: true, Gate: "logind.sock"},
	// FSETID keeps the setgid bit of folders given to a pod's fsGroup.
	Volume:   {Capabilities: []Capability{SysAdmin, Chown, Fowner, DacOverride, Fsetid}},
	Resource: {Capabilities: []Capability{DacOverride}, Gate: "systemd.sock"},
	// Files below /var/log, and the journal.
	NodeAPI: {Groups: []string{"adm", "systemd-journal"}},
}

// RightsOf tells a service's rights.
func RightsOf(s Service) Rights {
	r := rights[s]
	r.Capabilities, r.Groups = slices.Clone(r.Capabilities), slices.Clone(r.Groups)
	return r
}
