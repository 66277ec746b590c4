// SPDX-License-Identifier: Apache-2.0

// Package topology chooses the NUMA nodes that serve a pod. It is pure: the hints of
// providers in, an affinity or a refusal with the kubelet's reason out.
//
// A provider owns one kind of resource (devices, CPUs, memory). For a container, or for
// a whole pod, it says which sets of NUMA nodes could serve it; the policy merges what
// all of them say into one affinity (KEP-693), and each allocates by it. The merge gives
// the same answer as that of a kubelet 1.36.
package topology
