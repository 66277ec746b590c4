// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// BenchmarkOneOfThousand is what one status update costs on a full node.
func BenchmarkOneOfThousand(b *testing.B) {
	raw := map[string]*v1.Pod{}
	listing := Listing{Source: pod.SourceAPI, Heard: true, Entries: []Entry{{}}}
	for i := range 1000 {
		listing.Entries[0].Pods = append(listing.Entries[0].Pods, give(raw, "", fmt.Sprintf("p%d:u%d", i, i)))
	}
	state := Next(State{}, []Listing{listing}, at(1))
	b.ReportAllocs()
	for b.Loop() {
		pods := slices.Clone(listing.Entries[0].Pods)
		pods[500] = pods[500].DeepCopy()
		listing.Entries = []Entry{{Pods: pods}}
		next := Next(state, []Listing{listing}, at(2))
		if diff := Compare(state, next); len(diff.Reported) != 1 {
			b.Fatalf("%d changed, %d reported, want one reported", len(diff.Changed), len(diff.Reported))
		}
		state = next
	}
}
