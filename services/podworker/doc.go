// SPDX-License-Identifier: Apache-2.0

// Package podworker is the lifecycle of every pod, and the only connection to
// the container runtime.
//
// What it owns: the feeds podworker.pods (PodState), podworker.images and
// podworker.events; the broker's CRI socket; the pods' directories but for their
// volumes; container logs.
//
// How it works. Each pod has one worker (turn.go). A worker is woken when a
// fact it depends on changes, or when the time it asked for has come, and then
// goes once round: gather every fact from the replicas (gather.go), decide
// (internal/step, a pure function), write new decisions to the journal, start
// the actions (act.go) — none of which it waits for — and publish where the pod
// stands and what it waits for (publish.go). The end of an action wakes it
// again. After everything that changed the runtime it has pleg read the pod
// again, and makes nothing on the word of an older record. What a pod that is gone
// has left in the runtime is removed when the node is calm, within a minute (calm.go).
//
// What it promises. An admitted pod is never judged again while it runs. There are never two
// live sandboxes of a pod, nor two live instances of a container, nor two pods
// of one full name where one is static. Nothing is started once a pod is being
// ended, and grace only shrinks. No worker waits for another, or for a
// neighbour that is away: it says what it waits for, and the rest of the node
// goes on.
//
// How it comes back. Decisions are on the disk before they are acted upon
// (internal/journal). What was under way at a kill -9 is seen in the runtime and
// taken up; a container that runs is left alone, also one that a kubelet
// started. Without the journal, pods are adopted from the runtime's labels and
// annotations and from config.
package podworker
