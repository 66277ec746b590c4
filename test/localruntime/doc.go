// SPDX-License-Identifier: Apache-2.0

// Package localruntime runs a containerd of Sextant's own beside whatever else
// the machine has.
//
// It owns one directory, the socket in it, one bridge interface and one private
// address range. Everything that containerd, its shims, runc and the CNI plugins
// write goes below that directory; a containerd that is already there is never
// contacted, configured or stopped.
//
// Ensure is idempotent: it adopts the containerd that an earlier call started
// and starts one otherwise, so a killed caller loses nothing. The daemon is a
// process of its own in its own session and outlives its parent; a pid file with
// the process start time identifies it after the caller restarted. Teardown
// works from the files alone and from any state: a running daemon, a killed one,
// half a start.
//
// Both configuration formats in use are rendered: containerd 1.6/1.7 (version 2,
// one CRI plugin) and 2.x (version 3, CRI split in images and runtime).
package localruntime
