// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// TestOnlyIsAWholeMerge: a state that says in which pods alone it differs is the one that a
// merge of everything makes, over any news of two sources.
func TestOnlyIsAWholeMerge(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	version := 0
	newPod := func(i int) *v1.Pod {
		version++
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("p%d", i), UID: types.UID(fmt.Sprintf("u%d", random.IntN(40))), ResourceVersion: fmt.Sprint(version),
		}}
		if random.IntN(8) == 0 {
			p.Annotations = map[string]string{pod.ConfigMirrorAnnotation: "hash"}
		}
		if random.IntN(3) == 0 {
			p.Status.Phase = v1.PodSucceeded
		}
		return p
	}
	listings := []Listing{{Source: pod.SourceFile, Heard: true}, {Source: pod.SourceAPI, Heard: true, Entries: []Entry{{}}}}
	state, quick := State{}, 0
	for step := range 5000 {
		listings = slices.Clone(listings)
		file, server := &listings[0], &listings[1]
		pods := slices.Clone(server.Entries[0].Pods)
		switch what := random.IntN(20); {
		case what == 0:
			server.Heard = !server.Heard
		case what == 1:
			server.Err = fmt.Sprint(random.IntN(2))
		case what == 2:
			origin := fmt.Sprint(random.IntN(3))
			file.Entries = slices.DeleteFunc(slices.Clone(file.Entries), func(e Entry) bool { return e.Origin == origin })
			if random.IntN(3) > 0 {
				e := Entry{Origin: origin, Pods: []*v1.Pod{newPod(random.IntN(4))}}
				if random.IntN(3) == 0 {
					e.Problem = &Problem{Origin: origin, Message: "broken"}
				}
				if random.IntN(4) == 0 {
					e.Pods = nil // an empty list of a URL
				}
				if random.IntN(3) == 0 {
					e.Ignored = &Problem{Origin: origin, Message: "of no effect"}
				}
				file.Entries = append(file.Entries, e)
			}
		case what < 6 && len(pods) < 12:
			pods = append(pods, newPod(len(pods)))
		case what == 6 && len(pods) > 0:
			i := random.IntN(len(pods))
			pods = slices.Delete(pods, i, i+1)
		case what == 7 && len(pods) > 0: // another pod of that name
			pods[random.IntN(len(pods))] = newPod(0)
		case len(pods) > 0:
			for range random.IntN(3) {
				i := random.IntN(len(pods))
				p := newPod(i)
				p.Name, p.UID = pods[i].Name, pods[i].UID
				pods[i] = p
			}
		}
		server.Entries = []Entry{{Pods: pods}}

		from := state
		from.listings = nil
		want, got := Next(from, listings, at(step)), Next(state, listings, at(step))
		if got.Only != nil {
			quick++
		}
		if wanted, diff := Compare(state, want), Compare(state, got); !reflect.DeepEqual(uids(diff), uids(wanted)) {
			t.Fatalf("step %d: differs in %v, a merge of everything in %v", step, uids(diff), uids(wanted))
		}
		next := got
		got.Only, got.listings, want.listings = nil, nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d:\n%s--- a merge of everything:\n%s", step, render(state, got), render(state, want))
		}
		state = next
	}
	if quick < 500 {
		t.Errorf("%d of 5000 merges were of other versions only", quick)
	}
}

// uids of what a diff names.
func uids(d Diff) (all [3][]types.UID) {
	all[0] = d.Removed
	for _, p := range d.Changed {
		all[1] = append(all[1], p.Pod.UID)
	}
	for _, p := range d.Reported {
		all[2] = append(all[2], p.Pod.UID)
	}
	return all
}
