// SPDX-License-Identifier: Apache-2.0

// Package report carries pod statuses to the API server.
//
// The Desk holds, per pod, what should be there and what is known to be there;
// package plan says what to write next. The Sender takes writes off the desk: in
// order per pod, in parallel across pods, the urgent ones first, never by reading
// the API server. What config lists and the answers to writes are weighed by
// resourceVersion (package history), so a late echo makes no older status look new,
// and a restore of etcd costs one write a pod. A status that the API server accepts and
// does not show is sent again, at most each second and at last each 30 s; a pod's final
// delete does not wait for it.
//
// While the API server is away the desk keeps only the last status of each pod. One
// request at a time asks whether it is back, each for another pod in turn; then
// everything is sent at once. A pod whose write fails at the API server (5xx), or is not
// answered while others are, has a back-off of its own and goes after the other pods.
//
// The desk is memory only. After kill -9 it is filled again from the feeds and the
// journal, and finds nothing to write where the API server is up to date.
package report
