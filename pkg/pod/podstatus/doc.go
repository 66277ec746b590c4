// SPDX-License-Identifier: Apache-2.0

// Package podstatus turns what the node knows about a pod into its v1.PodStatus.
//
// It owns the wording and the rules of a pod's status: phase, conditions, container
// states, reasons and messages, as users know them from the kubelet. Render is a pure
// function from Input (desired pod, podworker's facts, pleg's record, prober's verdicts,
// the previous status, the node's facts and the time) to a status; Patch is a pure
// function from two statuses to the request body that makes one the other.
//
// Promises:
//
//   - A terminal phase is never left.
//   - What no verdict has been received about is not rewritten: a container that was
//     started or ready keeps being so for as long as it is the same container, so no
//     restart of any service flips a condition.
//   - A transition time changes exactly when the condition's status does.
//   - Conditions, and fields of the status, that the node does not own are kept.
//
// The package keeps nothing. After kill -9 the caller renders again from the same
// inputs, with the status at the API server as the previous one, and gets the same.
package podstatus
