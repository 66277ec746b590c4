// SPDX-License-Identifier: Apache-2.0

// Package events records the node's events at the API server.
//
// Each service keeps its events in a bounded feed; this package follows those feeds
// and creates one API event for each item, correlated as the kubelet does (repeats
// become a count, floods are thinned) by client-go's correlator.
//
// What it promises: an item is recorded once. How far each feed was recorded is
// remembered; an item that is met again after a crash makes the same name, which the
// API server has already. An API server that is away is waited for; what is waiting
// is bounded: of the object that has the most, the oldest is dropped. An event that the
// API server fails at is set aside and tried again while others are recorded; it is given
// up after 12 tries.
package events
