// SPDX-License-Identifier: Apache-2.0

// Package fakecri is an in-memory container runtime that serves the CRI
// (runtime.v1, both services) on a Unix socket.
//
// It owns everything a runtime owns: sandboxes with addresses, containers,
// images, log files (really written, in the CRI line format) and the event
// stream. What it promises is stated by test/crisuite, which it passes beside
// the real containerd: where the two differ in something the suite can see, the
// fake is wrong. Its processes are scripts in a small shell (see Config and
// Image), so one command line means the same to the fake and to busybox.
//
// Beyond that it can be told to fail, stall and lie: Fail, FailAfter, Stall, Linger and
// Lie act on any call; Withhold, SlowPull, DropEvents, Exit, OOMKill, Forget,
// Restart and their like act on the world. Every call is recorded (Calls), and
// WaitFor lets a test wait for a state without polling.
//
// A Runtime lives as long as Run. Nothing survives it on disk but the log
// files; Restart, Down and Up play a runtime that is killed and comes back: its
// connections break while its containers live on, as containerd's do.
package fakecri
