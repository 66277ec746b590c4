// SPDX-License-Identifier: Apache-2.0

package podworker

// topic is a kind of fact that does not belong to one pod. A worker is woken by
// every change of its own pod's facts, and by a change of a topic while it waits for
// one: on a full node there are many changes, and few workers that depend on them.
type topic int

const (
	// nodeResources: what the node has, and what its pods hold.
	nodeResources topic = iota
	// apiObjects: ConfigMaps, Secrets, Services, RuntimeClasses and the Node.
	apiObjects
	// fullNames: which pods of one full name run or hold it.
	fullNames
	// revisions: how far the replicas have come that show what a command did.
	revisions
	topics
)

// changes counts the changes of each topic.
type changes [topics]uint64
