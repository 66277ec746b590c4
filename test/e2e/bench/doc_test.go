// SPDX-License-Identifier: Apache-2.0

// Package bench_test runs the reference kubelet and Sextant in turn on the same
// machine, runtime and API server, beside bare CRI calls to that runtime, and
// prints what each takes: time, processor, memory, API requests.
//
//	make bench                     all of it
//	make bench BENCH=-short        a form of five minutes, whose figures say little
//
// In each round bare calls, with the least they need and with Sextant's own requests, and
// each agent on a new node have their turn; figures that need no round are of the last.
// Both agents are configured as kubeadm configures a node, but for the number of pods.
//
// Pods are one pause container each with the usual service account's token; the
// image is there. What is measured, and the numbers to beat, is in figures.Rows.
// Results go to -out: bench.json, bench.svg and bench.txt; -record adds a line to
// the history, and the last line that is there already is what a run is compared
// with.
//
// Figures of a machine that does other things at the same time say little: how
// busy it was before is printed with them.
package bench_test
