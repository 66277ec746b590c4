// SPDX-License-Identifier: Apache-2.0

// Package reaper ends commands in containers after their timeout, and the processes
// left in the cgroup of a pod that has no container any more.
//
// A runtime that ends an exec kills the process it started and no other (containerd, up
// to 2.4 at least): the children of that process stay in the container, and the call
// does not return while they hold the output open. Killing a container's process takes
// a right that no service has. So the supervisor, which is root, serves methods on a
// socket of its own: EndExec to podworker, and EndPod to resource, which removes the
// cgroups of pods. With them goes WatchKills, which gives resource what package
// kernellog finds.
//
// Family decides, as a pure function, which processes belong to the command. The
// command is a process started from outside the container, at the requested time or
// later, with the requested arguments; if several match, nothing is killed. Only
// processes in the cgroup of a container of this node are considered. They are stopped
// (SIGSTOP) before they are killed, so that no fork escapes.
//
// It owns nothing, and keeps only a cache of containers' cgroups.
package reaper
