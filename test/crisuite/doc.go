// SPDX-License-Identifier: Apache-2.0

// Package crisuite states what Sextant relies on of a container runtime, as
// tests over the CRI (runtime.v1).
//
// Run takes any runtime: it runs against test/fakecri in plain `go test`, and
// against a real containerd, 1.6 and 2.x, from the end-to-end tests. A
// behaviour on which the two differ belongs to neither Sextant nor the suite;
// one that Sextant needs belongs here, and a fake that differs from it is
// wrong. Where runtimes differ and Sextant copes with both, the suite says so
// and accepts both.
//
// The command lines of the containers are busybox's and the fake's common
// language (see test/fakecri/internal/shell).
//
// The suite leaves nothing behind: each test removes the sandboxes it ran.
package crisuite
