// SPDX-License-Identifier: Apache-2.0

package events

import (
	"math"
	"slices"
	"time"

	"k8s.io/client-go/tools/record"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/feed"
)

// retries are the waits after tries that failed.
var retries = backoff.Doubling{Least: 200 * time.Millisecond, Most: 10 * time.Second}

// pending is what the correlator made of an event, until the API server settles it.
type pending struct {
	feed   string
	result *record.EventCorrelateResult
	// update says that the event is there, and is counted up.
	update bool
	asked  time.Time // first
	// tries are those that the API server answered with trouble of its own, or did not
	// answer while it answered others.
	tries int
	due   time.Time
}

// aside holds the events that the API server did not take, beside the queue: one of them
// keeps no other from being recorded. Only Run's goroutine uses it.
type aside struct {
	events []*pending // the one whose last try is longest ago first
	// marks are how far feeds were recorded but for events that are aside.
	marks map[string]feed.Revision
	// away is how often in a row nothing was taken; nothing is sent before pause.
	away    int
	pause   time.Time
	reached time.Time // the last time that an event was settled
}

// maxAside bounds what is aside.
const maxAside = 256

// take removes the event that is to be tried now. away: the API server takes nothing, and
// each event is asked for in turn. fresh: there is one in the queue that was not tried.
func (a *aside) take(now time.Time, fresh bool) *pending {
	for i, p := range a.events {
		switch {
		case a.away > 0 && fresh && len(a.events) < maxAside:
			return nil
		case a.away == 0 && p.due.After(now):
			continue
		}
		a.events = append(a.events[:i:i], a.events[i+1:]...)
		return p
	}
	return nil
}

// next is how long nothing is due of what is aside.
func (a *aside) next(now time.Time) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, p := range a.events {
		least = min(least, max(p.due.Sub(now), time.Millisecond))
	}
	return least
}

// put sets an event aside until its next try. own: the trouble is this event's alone. It
// answers one that is given up for want of room.
func (a *aside) put(p *pending, own bool, now time.Time) (dropped *pending) {
	p.due = now.Add(retries.Jittered(p.tries + 1))
	if !own {
		a.away++
		a.pause = now.Add(retries.Jittered(a.away))
	}
	a.events = append(a.events, p)
	if len(a.events) <= maxAside {
		return nil
	}
	most := 0
	for i, other := range a.events {
		if other.tries > a.events[most].tries {
			most = i
		}
	}
	dropped = a.events[most]
	a.events = append(a.events[:most:most], a.events[most+1:]...)
	return dropped
}

// settled notes that the API server took, or refused, an event.
func (a *aside) settled(now time.Time) { a.away, a.pause, a.reached = 0, time.Time{}, now }

// holds reports whether an event of a feed is aside.
func (a *aside) holds(name string) bool {
	return slices.ContainsFunc(a.events, func(p *pending) bool { return p.feed == name })
}
