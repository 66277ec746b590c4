// SPDX-License-Identifier: Apache-2.0

// Package devices is the node's side of device plugins (v1beta1,
// k8s.io/kubelet/pkg/apis/deviceplugin): which devices there are, which a pod gets, and the
// calls to the plugins.
//
// # What it promises
//
//   - Which devices a pod gets is decided by Choice, which is pure. Nothing here keeps what
//     pods have: that is the journal's of package resource, from which it comes back after
//     any restart, whatever plugins have not registered again.
//   - A plugin that ends or has not registered again makes pods wait that ask for its
//     resource, for Grace; so does one that does not answer, until it does. Other pods and
//     plugins are not held up. (A kubelet refuses such pods for good.) What a plugin answers
//     that goes on is its answer, whatever code of gRPC it has.
//   - Neither the end of an old instance of a plugin nor a call that it does not answer does
//     harm to the new one.
//   - The kubelet's file kubelet_internal_checkpoint is read at start, and made for package
//     resource to write, so that either agent continues where the other stopped.
//
// # The parts
//
// inventory.go, choose.go and hints.go decide and are pure; plugin.go is the connection to
// one plugin, manager.go all of them, server.go the socket that they register at.
package devices
