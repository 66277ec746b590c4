// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"testing"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
)

// catchingUp is a replica that takes in the removal of its one record between two calls.
type catchingUp struct{ asked bool }

func (c *catchingUp) next() (before bool) {
	before, c.asked = !c.asked, true
	return before
}

func (c *catchingUp) Get(string) (*observe.Record, bool) { return &observe.Record{}, c.next() }

func (c *catchingUp) State() (feed.Revision, bool, int, error) {
	n := uint64(5)
	if c.next() {
		n = 4
	}
	return feed.Revision{Epoch: "a", N: n}, true, 1, nil
}

// TestAForgottenPodIsNotSeenAgain: a record that goes while it is looked at is none of
// after the pod was forgotten, which would make it an orphan.
func TestAForgottenPodIsNotSeenAgain(t *testing.T) {
	forgotten := feed.NewBarrier(feed.Revision{Epoch: "a", N: 5}, feed.Revision{Epoch: "a", N: 3})
	if (departed{barrier: forgotten}).shows(&catchingUp{}, "u") {
		t.Error("a record of before the pod was forgotten counts as one of after")
	}
}
