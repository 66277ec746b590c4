// SPDX-License-Identifier: Apache-2.0

// Package feed is how facts travel: an Owner holds the items of one feed and
// answers Changes; a Replica holds a reader's copy and keeps it current.
//
// What it promises. A replica converges on the owner's items whatever is lost,
// doubled or reordered in between: announcements only say "look", and to whom, by
// their revision; a gap, a new epoch, a reconnect and a start are all the same
// pull. An item leaves a replica only when the owner deleted it, or when an owner
// that calls itself complete does not have it; so a restarting owner empties
// no reader's view. An item that does not decode leaves the others as they are. A
// feed of any size arrives: page by page, and in one step. A reader polls unless
// both it and the owner are on the bus.
//
// How it comes back. An owner takes a new epoch at each start and is complete
// again when its service says so. A replica keeps what it had while the owner
// is away, and replaces it by what the new owner says.
//
// The one conformance suite is in test/feedtest; every feed of the house passes it,
// in process and over a socket, with the bus and without.
package feed
