// SPDX-License-Identifier: Apache-2.0

// Package logs reads containers' logs for others and keeps them small.
//
// Server answers PodWorkerService.ContainerLogs: it finds the instance of a
// container the question is about, reads its log in the runtime's format, and
// follows it across rotation until the container ends. Each answer carries a
// cursor, so that a reader can go on where it was after podworker was killed.
//
// Rotator renames logs that have grown too large, lets the runtime open new
// ones, compresses and finally removes old ones, with the kubelet's names and
// limits.
//
// Neither keeps state: a reader brings its cursor, and which files there are is
// read from the disk each time, so half-done work is finished or undone by the
// next round.
package logs
