// SPDX-License-Identifier: Apache-2.0

// Package status is the service that tells the API server: pod status, the final
// delete of pods, mirror pods, the Node and its status, Lease and CSINode, and Events. It is
// the only process of the node that writes there.
//
// # What it owns
//
// The rendered status of every pod and how far it has travelled (feed status.pods),
// the rendered Node (status.node), and the objects named above at the API server.
//
// # What it promises
//
//   - A status follows the facts: each change of a feed is rendered (package
//     pkg/pod/podstatus) and patched, in order per pod, in parallel across pods, what
//     is urgent first, without reading the API server.
//   - A neighbour that is away, restarting or behind changes nothing: facts that only
//     its absence would contradict are held (internal/gather), and the node stays
//     ready for as long as a grace (internal/nodestatus).
//   - A pod's API object is deleted once, by UID, after its terminal status is there
//     and podworker has released everything.
//   - Each static pod has one mirror pod of its version while the Node exists,
//     whatever came first: the pod, the Node or the API server.
//   - Nothing holds up the Lease: it has its own loop and its own connections.
//   - An API server that is away is normal. The last status of each pod is kept, on
//     disk too, and sent when it is back.
//   - Each event of the node is recorded once.
//
// Without credentials (standalone) it renders, and writes nothing.
//
// # How it comes back
//
// After kill -9 it starts with the journal (internal/journal): the configuration, the
// last statuses, how far events were recorded. The feeds fill its replicas; what was
// journaled is weighed against the API server's status as config has it, and what
// the API server has already is not sent again.
//
// # Rooms
//
// inputs.go decodes the feeds, loop.go is the loop of pods (publish.go and
// mirrorpods.go are what comes of it), node.go gathers the Node, service.go puts it
// together; there is no server.go, for status has no callers. In internal/, gather, plan and nodestatus decide, and are pure; report, nodesync, csinode,
// lease and events act; api, host and journal are the API server, the machine and the disk.
package status
