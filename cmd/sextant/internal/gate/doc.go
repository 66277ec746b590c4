// Package gate lets services that are not root ask root's things of the system bus.
//
// systemd takes orders from root alone, or from whom polkit trusts, and asks for
// no capability; the system bus turns away uids that have no account. So the
// supervisor, which is root, keeps gates: each a socket that speaks D-Bus, open to
// one uid, behind which is the system bus. A policy says what passes; all else is
// answered with AccessDenied, and nobody behind sees it.
//
// Slices passes the slices of pods, for resource. Logind passes what tells of a
// shutdown, for podworker, and carries out two orders itself: it keeps the lock
// that delays a shutdown, which thus outlives podworker, and sees to it that logind
// grants the delay.
//
// The lock is all it owns; it is given up with the supervisor. The gates come back
// with it, clients dial again, and podworker asks for the lock again.
package gate
