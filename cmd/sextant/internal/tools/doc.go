// Package tools runs, as root, the distribution's tools for network storage.
//
// mount.nfs refuses every caller that is not root, whatever its capabilities, and
// volume has a uid of its own. So the supervisor (with systemd
// sextant-tools.service) serves this order on a socket, to volume alone. What is
// asked for comes as values of known forms (check.go), never as arguments; what
// is run for them is decided here, and listed by tests.
//
// It owns nothing and keeps nothing. Orders are idempotent: each looks whether what
// it is for is there. Two about the same thing are carried out one after the other; a
// tool that does not end when it is killed (a server is gone, the kernel waits for
// it) keeps others from that thing, and nobody else.
package tools
