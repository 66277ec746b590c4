// Package feed is how facts travel: an Owner holds the items of one feed and
// answers Changes; a Mirror holds a reader's copy and keeps it current.
//
// What it promises. A mirror converges on the owner's items whatever is lost,
// doubled or reordered in between: announcements only say "look", and to whom, by
// their revision; a gap, a new epoch, a reconnect and a start are all the same
// pull. An item leaves a mirror only when the owner deleted it, or when an owner
// that calls itself complete does not have it; so a restarting owner empties
// nobody's view.
//
// How it comes back. An owner takes a new epoch at each start and is complete
// again when its service says so. A mirror keeps what it had while the owner
// is away, and replaces it by what the new owner says.
//
// The one conformance suite is in feedtest; every feed of the house passes it,
// in process and over a socket, with the bus and without.
package feed
