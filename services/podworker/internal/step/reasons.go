// SPDX-License-Identifier: Apache-2.0

package step

// Reasons of evictions that have a kind of verdict of their own.
const (
	reasonPreempting = "Preempting"
	reasonShutdown   = "Terminated"
	reasonDeadline   = "DeadlineExceeded"
	reasonRefused    = "NodeShutdown"
	reasonNoRoom     = "VolumeAttachmentLimitExceeded"
	reasonUnexpected = "UnexpectedAdmissionError"
	shutdownMessage  = "Pod was terminated in response to imminent node shutdown."
	refusedMessage   = "Pod was rejected as the node is shutting down."
	nodeGoing        = "the node is shutting down"
	deadlineMessage  = "Pod was active on the node longer than the specified deadline"
)
