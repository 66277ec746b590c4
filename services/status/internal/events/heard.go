// SPDX-License-Identifier: Apache-2.0

package events

import "time"

// rememberFor is for how long an event is known again, at the least: longer than a service takes
// to come back and emit once more what it emitted before its end.
const rememberFor = time.Minute

// heard are the events of the last minute or two.
type heard struct {
	since    time.Time
	now, old map[ID]bool
}

// again reports whether an event was heard lately, and remembers it.
func (h *heard) again(id ID, at time.Time) bool {
	if h.now == nil || at.Sub(h.since) > rememberFor {
		if at.Sub(h.since) > 2*rememberFor {
			h.now = nil
		}
		h.old, h.now, h.since = h.now, map[ID]bool{}, at
	}
	known := h.now[id] || h.old[id]
	h.now[id] = true
	return known
}
