// SPDX-License-Identifier: Apache-2.0

// Package cpumanager chooses CPUs for containers as the static policy of a kubelet's CPU
// manager does (KEP-3570), options included. It is pure: the machine's layout, what pods
// have and what one asks for in, sets of CPUs out.
//
// A container of a Guaranteed pod that asks for a whole number of CPUs gets CPUs of its
// own; all others share the rest. With the gate PodLevelResourceManagers a pod with
// resources of its own may have CPUs as a whole, of which each container has a part
// (KEP-5526). What is shared is never stored: it is what no container has of its own.
package cpumanager
