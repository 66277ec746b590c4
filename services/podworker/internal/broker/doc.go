// SPDX-License-Identifier: Apache-2.0

// Package broker is the only connection to the container runtime, and the CRI
// server that lends it to the other services.
//
// It serves runtime.v1 (RuntimeService and ImageService) on a socket of its own.
// Who may call which method is decided by the caller's uid and the table in
// pkg/house, before a byte goes on. What is let through is passed as it is:
// requests, answers and streams as bytes, errors with the runtime's codes and
// details, but for ExecSync: prober may run nothing in a container but its exec probes
// (Deps.MayProbe), and gets as much of their output as a probe's message holds. Of
// what commands say, 16 MiB are received of one, and of two at a time: a container
// that says much takes time from others, but no memory. Podworker itself uses the
// same connection through Runtime and Images. A container that podworker removes is removed
// although containerd's CRI service cannot (pkg/containerd).
//
// It promises to serve without anybody's help — no configuration, no bus, no
// runtime. While the runtime is away every call fails at once with Unavailable,
// and the connection is retried (200 ms, growing to 3 s) until it is back; the
// broker never ends because of it. A call that hangs holds one stream and no
// other call, but for podworker's calls that have the runtime start, stop or remove
// something: they wait for their turn (Config.Starts, Config.Stops, Config.Removals), and
// then for no more than a moment behind what hangs.
//
// It keeps no state: after kill -9 it listens and dials again.
package broker
