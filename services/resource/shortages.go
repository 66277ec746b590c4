// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/store"
	"github.com/sextant-node/sextant/services/resource/internal/eviction"
)

// shortage is since when the node is short of something: what a restart must not forget of
// an eviction.History. Without it a condition would end before its transition period, and
// the grace of a soft threshold begin again.
type shortage struct {
	// At is when the node was looked at last.
	At         time.Time                                   `json:"at"`
	Conditions map[v1.NodeConditionType]eviction.Condition `json:"conditions,omitempty"`
	Thresholds []threshold                                 `json:"thresholds,omitempty"`
	// Left is when the last pod that was evicted went; zero for none.
	Left time.Time `json:"left,omitzero"`
}

// threshold is one that is met.
type threshold struct {
	Signal string    `json:"signal"`
	Hard   bool      `json:"hard,omitempty"`
	Since  time.Time `json:"since"`
	Met    bool      `json:"met,omitempty"`
}

// unseen is how long a threshold may not have been looked at and still count as met without
// a break: a restart takes seconds.
const unseen = time.Minute

// shortages keeps it in the checkpoint, in one record, which is there while there is
// something to keep.
type shortages struct {
	mu    sync.Mutex
	table *store.Table[shortage]
	last  *shortage // as it is kept; nil for none
}

const shortageKey = "now"

// restored is a shortage as the checkpoint has it, with times to compare with now.
func (s shortage) restored(now time.Time) *shortage {
	s.At, s.Left = restored(s.At, now), restored(s.Left, now)
	for kind, c := range s.Conditions {
		c.Since, c.Crossed = restored(c.Since, now), restored(c.Crossed, now)
		s.Conditions[kind] = c
	}
	for i := range s.Thresholds {
		s.Thresholds[i].Since = restored(s.Thresholds[i].Since, now)
	}
	return &s
}

func openShortages(l *ledger, now time.Time) (*shortages, error) {
	table := store.NewTable(l.file, "shortages", store.JSON[shortage]())
	s := &shortages{table: table}
	kept, ok, err := table.Get(shortageKey)
	if err != nil {
		return nil, fmt.Errorf("shortages: %w", err)
	}
	if ok {
		s.last = kept.restored(now)
	}
	return s, nil
}

// history is what a pass begins with after a start. Observations are made anew.
func (s *shortages) history(now time.Time) (h eviction.History) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return h
	}
	h.Conditions = maps.Clone(s.last.Conditions)
	if now.Sub(s.last.At) > unseen {
		return h
	}
	h.Seen, h.Met = map[eviction.Key]time.Time{}, map[eviction.Key]bool{}
	for _, t := range s.last.Thresholds {
		key := eviction.Key{Signal: t.Signal, Hard: t.Hard}
		h.Seen[key] = t.Since
		if t.Met {
			h.Met[key] = true
		}
	}
	return h
}

// keep writes what a pass leaves, if it has changed.
func (s *shortages) keep(now time.Time, h eviction.History) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &shortage{At: now}
	if s.last != nil && now.Sub(s.last.Left) < eviction.Freeing {
		next.Left = s.last.Left
	}
	for kind, c := range h.Conditions {
		if c.Under {
			if next.Conditions == nil {
				next.Conditions = map[v1.NodeConditionType]eviction.Condition{}
			}
			next.Conditions[kind] = c
		}
	}
	for key, since := range h.Seen {
		next.Thresholds = append(next.Thresholds, threshold{key.Signal, key.Hard, since, h.Met[key]})
	}
	slices.SortFunc(next.Thresholds, func(a, b threshold) int {
		return strings.Compare(fmt.Sprint(a.Signal, a.Hard), fmt.Sprint(b.Signal, b.Hard))
	})
	switch {
	case next.Conditions == nil && next.Thresholds == nil && next.Left.IsZero() && s.last == nil:
		return nil
	case next.Conditions == nil && next.Thresholds == nil && next.Left.IsZero():
		s.last = nil
		return s.table.Delete(shortageKey)
	case s.last != nil && len(next.Thresholds)+len(s.last.Thresholds) == 0 && reflect.DeepEqual(s.last.Conditions, next.Conditions):
		return nil // a condition that waits for its end says the same at each pass
	}
	return s.put(next)
}

// leave notes, before a pod that was evicted is forgotten, that it has gone.
func (s *shortages) leave(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := ptr.Deref(s.last, shortage{At: now})
	next.Left = now
	return s.put(&next)
}

// left is when the last pod that was evicted went; zero for none that matters.
func (s *shortages) left() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return time.Time{}
	}
	return s.last.Left
}

func (s *shortages) put(next *shortage) error {
	s.last = next
	return s.table.Put(shortageKey, *next)
}
