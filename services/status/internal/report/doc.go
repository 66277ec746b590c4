// Package report carries pod statuses to the API server.
//
// The Desk holds, per pod, what should be there and what is known to be there;
// package plan says what to write next. The Sender takes writes off the desk: in
// order per pod, in parallel across pods, the urgent ones first, never by reading
// the API server. What others know of the API server (the feed of config) and the
// answers to our own writes are weighed by resourceVersion, so neither a late echo
// nor a restarted neighbour makes an older status look new.
//
// While the API server is away the desk keeps only the last status of each pod, one
// request at a time asks whether it is back, and then everything is sent at once.
//
// The desk is memory only. After kill -9 it is filled again from the feeds and the
// journal, and finds nothing to write where the API server is up to date.
package report
