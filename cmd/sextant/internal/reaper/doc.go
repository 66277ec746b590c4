// Package reaper ends commands in containers whose time is over.
//
// A runtime that ends an exec kills the process it started and no other
// (containerd, up to 2.4 at least): what that has forked stays in the container,
// and keeps the call from returning while it holds the output open. Killing a
// container's process takes a right that no service has. So the supervisor, which
// is root, serves this one order on a socket of its own, to podworker alone.
//
// Family is the judgement, pure: which processes are the command's. Only what was
// started from outside the container, after the order's time, can be it; of
// several the one with the same arguments; when that does not decide, nothing is
// touched. Nothing outside the cgroup of a container of this node is ever looked at.
//
// It owns nothing and keeps nothing but where containers' cgroups were found.
package reaper
