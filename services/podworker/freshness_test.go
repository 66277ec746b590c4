// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"testing"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/test/feedtest"
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

// TestRecordsDoNotGoBack: what a refresh answered counts until the replica shows it, and
// never again: not when pleg begins anew and has not told all yet.
func TestRecordsDoNotGoBack(t *testing.T) {
	plegs := feedtest.Local{}
	begin := func(epoch string) *feed.Owner[*plegv1.PodRecord] {
		owner := feed.NewOwner[*plegv1.PodRecord](house.PlegPods.Name, epoch, nil)
		plegs[house.PlegPods.Name] = owner
		return owner
	}
	replica := feed.NewReplica(feed.ReplicaConfig{Feed: house.PlegPods.Name, Puller: plegs}, feed.Decoder(observe.Decode))
	f := &freshness{in: &Inputs{Records: replica}, uid: "u"}
	look := func(what, want string) {
		t.Helper()
		f.follow()
		record, known := f.current()
		if got := (map[bool]string{false: "unknown", true: "none"})[known]; record == nil && got != want || record != nil && record.Error != want {
			t.Errorf("%s: %v, known: %t, want %q", what, record, known, want)
		}
	}
	set := func(owner *feed.Owner[*plegv1.PodRecord], message string) feed.Revision {
		t.Helper()
		at, err := owner.Set(t.Context(), "u", &plegv1.PodRecord{Uid: "u", Error: message})
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	pull := func() {
		t.Helper()
		if err := replica.Pull(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	first := begin("a")
	first.SetComplete(t.Context(), true)
	pull()
	before, _, _, _ := replica.State()
	f.refreshed(&observe.Record{Error: "answered"}, feed.NewBarrier(set(first, "answered"), before))
	look("the replica is behind", "answered")
	pull()
	set(first, "later")
	pull()
	look("a later record", "later")
	if f.record != nil {
		t.Error("the answer is kept beside the replica's own")
	}
	second := begin("b")
	pull()
	look("pleg begins anew", "later")
	set(second, "anew")
	pull()
	look("it has told of the pod", "anew")
	second.Delete(t.Context(), "u")
	pull()
	look("it has none, and has not told all", "unknown")
	second.SetComplete(t.Context(), true)
	pull()
	look("it has told all", "none")
}
