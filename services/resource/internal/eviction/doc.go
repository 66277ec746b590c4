// SPDX-License-Identifier: Apache-2.0

// Package eviction decides when a node is short of something, what is reclaimed of
// the node's own, and which pod goes. It is pure: configuration, observations with
// their times, pods with their usage, the history and the time come in; conditions, the
// reclaim wanted and verdicts come out.
//
// The rules are a kubelet's. A threshold is met while what is available is below it,
// and, once its grace period is over, until the minimum reclaim is there as well. A
// condition is on from the first observation below a threshold (without grace) until
// none was made for the transition period. One pass reclaims for one threshold, memory
// first: dead containers and unused images where they are on the file system in
// question, and, if any threshold is met after that still, one pod. Pods over a local
// storage limit of their own go first, without regard to the node.
//
// Static pods, mirror pods and pods of a system priority are never evicted.
package eviction
