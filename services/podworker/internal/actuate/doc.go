// SPDX-License-Identifier: Apache-2.0

// Package actuate carries out what podworker has decided about pods: it makes
// and removes sandboxes and containers, makes images present, runs lifecycle
// hooks, and lays out a pod's files and logs.
//
// Every act may be repeated: what is gone already is removed, what is stopped
// already is stopped. Nothing is retried and nothing is decided here — an act
// ends with success, with an Error that says in the words of a pod's status why
// not, or with the caller's context. Acts on different pods and containers do
// not wait for each other, except pulls, which queue as configured.
//
// Events that tell of a single act (Pulling, Pulled, Created, Started, Killing,
// Failed, hooks, DNS) are emitted here, worded as the kubelet words them.
//
// It owns below the state directory pods/<uid> but its volumes, below the log
// directory all folders, and the links in the legacy log directory. It keeps no
// state of its own: after kill -9 whatever was half done is seen in the runtime
// and done again.
package actuate
