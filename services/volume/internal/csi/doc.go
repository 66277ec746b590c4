// SPDX-License-Identifier: Apache-2.0

// Package csi is the node's side of the Container Storage Interface
// (github.com/container-storage-interface/spec): it has drivers stage, publish,
// unpublish and unstage volumes, in that order, and keeps count of who uses what.
//
// It owns which drivers are registered, and for each volume of a driver what was
// asked of it. Before a driver is asked for anything the intent is in the journal;
// what a driver may have done is undone by asking it to, never by going around it.
// Paths and vol_data.json files are the kubelet's, so that either agent finds the
// other's volumes.
//
// It comes back from the journal, and from vol_data.json files that the journal
// does not know. What was done before the machine was last started counts for
// nothing. Drivers known before are taken to be there for as long as their sockets
// are.
//
// Calls have deadlines. What is done about one volume is done one step at a time; a
// driver that hangs holds up its own volumes only.
package csi
