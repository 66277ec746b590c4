// SPDX-License-Identifier: Apache-2.0

// Package memorymanager chooses NUMA nodes for the memory and the huge pages of containers
// as the Static policy of a kubelet's memory manager does (KEP-1769). It is pure: the
// machine's layout, what pods have and what one asks for in, blocks of memory out.
//
// Containers of a Guaranteed pod get blocks, one for each kind of memory; all others have
// none and may use every node. With the gate PodLevelResourceManagers a pod with resources
// of its own may have blocks as a whole, of which each container has a part (KEP-5526). A node serves either blocks of its own or blocks of one
// group of nodes. What is free on the nodes is never stored: it is what the blocks leave.
package memorymanager
