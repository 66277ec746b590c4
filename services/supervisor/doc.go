// SPDX-License-Identifier: Apache-2.0

// Package supervisor is the part of the node that is root. It creates folders, gives
// each service a uid of its own and the rights of the house table, and serves requests
// that need a right no service has. With `sextant up` it is one process, which starts
// the services and restarts those that end; with systemd it is two units
// (house.RootParts).
//
//   - gate: passes permitted requests of resource to systemd, and of podworker to logind
//   - reaper: ends commands in containers, and processes that pods leave in their cgroups
//   - kernellog: finds in the kernel's log what was killed for want of memory
//   - tools: runs the distribution's tools for network storage
//   - chains: keeps a kubelet's chains of iptables
//   - versions: the versions of the program, side by side
//
// It owns the run directory's plan (node.json), the identities and the bus keys, and no
// state of the services. Services and pods go on without the supervisor: when it dies
// the services stay, and the next `sextant up` replaces them, without an effect on the
// pods.
package supervisor
