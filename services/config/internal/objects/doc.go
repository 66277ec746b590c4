// SPDX-License-Identifier: Apache-2.0

// Package objects keeps the API objects that the node's pods need: it follows
// each of them for as long as it is wanted, and tells every change.
//
// ConfigMaps, Secrets, classes, drivers and the Node are watched one by one, as
// the node authorizer demands; claims, volumes and attachments, which a node
// may only get, are asked for until they are as they should be. A claim is then asked
// for once a minute, as its growth is announced nowhere; a volume when its claim has
// changed, an attachment when the Node's list of them has, a resource claim when other pods use it,
// until it is reserved for them. They are asked for with a
// limit of their own. All Services come by one watch and only those of wanted
// namespaces are published.
//
// An object that was read once stays while the API server is away; "does not
// exist" is published only when the API server said so. After a restart the objects
// kept on disk are there at once (Restore) and stay published until the API
// server says otherwise; those that a pod needs which has come since are read first
// (Fresh). So are those that are asked for by the clock, for each pod that comes (Arrived).
package objects
