// SPDX-License-Identifier: Apache-2.0

// Package resource says what the node has and who holds it.
//
// It owns the node's capacity, allocatable and pressure (feed resource.node),
// what each admitted pod holds (feed resource.pods), and the cgroups from
// kubepods down to the pods; those of containers are the runtime's.
//
// It promises that an admission is given once: a pod that was admitted is
// admitted again, whatever has changed since, and a pod that already runs is
// never refused. What is missing but will come is "not yet", with a reason.
// A pod's cgroup exists when Admit has answered, and is gone, or the item says
// why not, after Release. Processes it still holds then are killed.
//
// What a running pod asks to be changed of its resources (Resize) is judged here
// and nowhere else: allocated at once, or Deferred and judged again when something
// becomes free, or Infeasible. Its cgroup has room for the old and the new until
// podworker says that the containers have the new (Settle).
//
// What the node, its pods and their containers use is read from cgroups on
// request (Usage), at most once a second, and never by itself.
//
// When the node is short of memory, disk or processes, or a pod uses more local storage
// than its limits allow, a verdict in the pod's item says that it must go
// (internal/eviction decides). It is on the disk before it is in the feed, and the next
// waits until that pod is gone, so that no kill of a process costs a second pod.
//
// Devices of plugins are chosen at admission, and what the plugins answered is in the
// checkpoint before the answer to podworker (internal/devices, devices.go). Running pods
// keep them, whatever plugins do; a pod that asks for a device waits while the plugin is
// away or does not answer. After a boot, when nothing runs, it is checked once that devices
// and CPUs of pods are there still (boots.go).
//
// So are CPUs (internal/cpumanager) and memory (internal/memorymanager), where the topology
// policy wants them (internal/pinning). The kubelet's files of CPUs, memory and devices are
// written of what pods have, after the answer (statefiles.go), and so are those of the resources that
// pods are allocated (sizefiles.go): after a kubelet that has resized pods it is they that count.
//
// Its parts, each made of those before it: node.go (what is known of the node),
// ledger.go (what pods hold: memory, checkpoint, feed), tree.go (cgroups), usage.go (what
// is used), devices.go, evict.go, resize.go, release.go, admission.go. service.go puts them together,
// server.go and loop.go call them. An admission goes in one order: judge, have allocators
// choose (internal/allocate), journal, act.
//
// A critical pod that only resources keep away waits for victims (internal/preempt), which
// get such a verdict too.
//
// It comes back from its checkpoint of allocations, and makes sure of every
// cgroup in it. A lost checkpoint costs nothing that runs: podworker asks again
// for each pod, as running where something of it runs.
package resource
