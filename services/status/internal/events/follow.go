// SPDX-License-Identifier: Apache-2.0

package events

import (
	"slices"

	"github.com/sextant-node/sextant/pkg/feed"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

// Replica is a copy of a feed of events.
type Replica interface {
	Feed() string
	Watch(changed func(keys []string))
	Get(key string) (*eventv1.Event, bool)
	State() (revision feed.Revision, complete bool, items int, err error)
}

// Follow records every event of a feed from now on. seen, which may be nil, gets
// each as well. Call it before the replica runs.
func (r *Recorder) Follow(m Replica, seen func(*eventv1.Event)) {
	m.Watch(func(keys []string) {
		revision, _, _, _ := m.State()
		keys = slices.Clone(keys)
		slices.Sort(keys) // those of an earlier process, and numbers of fixed width, in the order of happening
		var present []string
		var events []*eventv1.Event
		for _, key := range keys {
			e, ok := m.Get(key)
			if !ok {
				continue // dropped by its owner
			}
			present, events = append(present, key), append(events, e)
			if seen != nil {
				seen(e)
			}
		}
		r.Add(m.Feed(), revision, present, events)
	})
}
