// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/services/pleg/internal/record"
)

// TestGivenLists: what a list shows is read without another one, unless a reading of the
// pod has ended after the list was begun, or more is asked.
func TestGivenLists(t *testing.T) {
	list := &record.Listing{Sandboxes: []*runtimeapi.PodSandbox{{Id: "s"}}}
	reading := func(r *readers, p *reader) *record.Listing {
		next := r.begin(p)
		return next.question.listing(p.found, p.exited)
	}
	for _, test := range []struct {
		name string
		// between happens between the mark and the question.
		between func(r *readers, p *reader)
		lists   bool
	}{
		{"alone", func(*readers, *reader) {}, false},
		{"another pod was read", func(r *readers, _ *reader) {
			_, other, _ := r.ask("other", listed())
			r.begin(other)
			r.end(other)
		}, false},
		{"read since", func(r *readers, _ *reader) {
			_, p, _ := r.ask("a", listed())
			r.begin(p)
			r.end(p)
		}, true},
		{"somebody wants all", func(r *readers, _ *reader) { r.ask("a", listed()) }, true},
		{"an event", func(r *readers, _ *reader) {
			r.note("a", noticed(&runtimeapi.ContainerEventResponse{ContainerId: "s", PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "s"}}))
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newReaders()
			_, p, _ := r.ask("a", listed())
			r.begin(p)
			r.end(p) // before the list
			since := r.mark()
			test.between(r, p)
			r.ask("a", given(list, since))
			if got := reading(r, p); (got == nil) != test.lists {
				t.Errorf("asked about %v, want a list of the runtime: %v", got, test.lists)
			}
		})
	}
	t.Run("under way", func(t *testing.T) {
		r := newReaders()
		_, p, _ := r.ask("a", listed())
		r.begin(p)
		since := r.mark()
		r.ask("a", given(list, since))
		r.end(p)
		if got := reading(r, p); got != nil {
			t.Errorf("asked about %v, want a list of the runtime: the reading before may have found more", got)
		}
	})
}
