// SPDX-License-Identifier: Apache-2.0

// Package shell is the small shell that the processes of the fake runtime speak.
//
// It is a subset of what busybox sh understands, plus a few verbs for what a
// real process does by itself (run out of memory, exit after a while). The
// common subset is what lets test/crisuite give one command line to the fake
// and to a real container and demand the same outcome of both.
//
// Parse is pure. A Proc runs a parsed script: its time is an injected clock,
// its files, output and programs are interfaces and functions of the caller.
// A Proc ends by itself, or when its context is cancelled (the KILL signal).
package shell
