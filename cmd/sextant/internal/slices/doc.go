// Package slices lets a service that is not root make the slices of pods.
//
// systemd takes orders from root alone, or from whom polkit trusts, and asks for
// no capability; the system bus turns away uids that have no account. So the
// supervisor, which is root, keeps a gate: a socket that speaks D-Bus, open to
// one uid, behind which is the system bus. What passes is reading the manager's
// properties, and making, changing and stopping slices from kubepods down; all
// else is answered with AccessDenied, and systemd never sees it.
//
// It owns nothing. It comes back with the supervisor; the client dials again.
package slices
