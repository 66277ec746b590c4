// SPDX-License-Identifier: Apache-2.0

// Package gate lets services that are not root make some of root's calls on the system
// bus.
//
// systemd accepts commands from root, or from those polkit trusts; a capability does
// not help. The system bus refuses uids without an account. So the supervisor, which is
// root, serves gates: each is a D-Bus socket in front of the system bus, open to one
// uid. A policy decides what passes; anything else is answered with AccessDenied and
// does not reach the bus.
//
// A client is hostile: messages are bounded and read strictly (Decode), and the
// socket is made where the client cannot interfere (listen).
//
// Slices passes calls about the slices of pods, for resource. Logind passes the signals
// of a shutdown, for podworker, and carries out two calls itself: it holds the lock
// that delays a shutdown, which so outlives podworker, and makes logind grant the
// delay.
//
// The lock is all it owns; it is released when the supervisor ends. After a restart of
// the supervisor clients dial again, and podworker asks for the lock again.
package gate
