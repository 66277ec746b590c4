// SPDX-License-Identifier: Apache-2.0

// Package tools runs, as root, the distribution's tools for network storage.
//
// mount.nfs refuses every caller that is not root, whatever its capabilities, and
// volume has a uid of its own. So the supervisor (with systemd sextant-tools.service)
// serves mounts on a socket, to volume alone. Requests are values of fixed form
// (check.go), never arguments; the commands run for them are decided here, and listed
// by tests.
//
// It owns nothing and keeps nothing. Requests are idempotent: each checks first whether
// its result is there already. Two about the same thing are carried out one after the
// other; a tool that does not end when killed (the kernel waits for a dead server)
// blocks further requests about that thing, and no others. So does one that makes or repairs
// a file system, which is not killed.
package tools
