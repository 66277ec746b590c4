// SPDX-License-Identifier: Apache-2.0

// Package dra prepares the devices of resource claims (Dynamic Resource Allocation,
// KEP-4381): it knows the drivers that registered on the node, has them prepare the claims
// of admitted pods, and has them unprepare a claim when its last pod has gone.
//
// # What it promises
//
//   - A claim is on the disk, with the pod that uses it and the drivers that are about to
//     be called, before a driver is called. A driver that has prepared a claim is not called
//     again for it in the same boot of the node, whatever restarts meanwhile and however many
//     pods share the claim. (A kubelet calls again after each of its restarts.) Only a kill
//     between a driver's answer and its record costs a second call, which drivers must take
//     (k8s.io/kubelet/pkg/apis/dra/v1).
//   - After a boot every claim of the node's pods is prepared again: CDI files are below
//     /run.
//   - What a driver was called for is unprepared when no pod uses it, though the claim or
//     the pod is deleted and the driver comes back hours later. It is tried again each
//     ten seconds, and at once when the driver registers.
//   - A pod that waits because a deleted claim has the name of its own is tried again when that
//     one is unprepared.
//   - A driver that hangs holds up the pods that need it, and no other.
//   - How a device is, is what its driver reported last (KEP-4680), for as long as the report
//     counts; a restart of the service does not make it unknown.
//
// # The parts
//
// needs.go, claim.go and checkpoint.go decide and are pure; drivers.go calls drivers and
// takes in what they report of devices, which health.go keeps;
// manager.go and work.go are the goroutine for each pod that does one after the other.
//
// The claims are in the table dra-claims of the service's store, and in the kubelet's file
// dra_manager_state, so that either agent continues where the other stopped.
package dra
