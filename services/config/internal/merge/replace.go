// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// newVersions are the pods of the API server of which the listings have another version
// than those before; only, if nothing else differs. Most news of a full node are of this
// kind, statuses that the node itself has written, and the other pods do not matter to
// them. Where a pod is refused, whatever comes may change that, or the reason.
func newVersions(was State, listings []Listing) (versions []*v1.Pod, only bool) {
	if was.listings == nil || len(was.listings) != len(listings) {
		return nil, false
	}
	for i, next := range listings {
		had := was.listings[i]
		if slices.ContainsFunc(was.Sources[i].Problems, func(p Problem) bool { return p.Pod != nil }) {
			return nil, false
		}
		if had.Source != next.Source || had.Heard != next.Heard || had.Err != next.Err || len(had.Entries) != len(next.Entries) {
			return nil, false
		}
		for j, e := range next.Entries {
			before := had.Entries[j]
			if before.Origin != e.Origin || before.Problem != e.Problem || before.Ignored != e.Ignored || !before.Rewritten.Equal(e.Rewritten) || len(before.Pods) != len(e.Pods) {
				return nil, false
			}
			for k, p := range e.Pods {
				if before.Pods[k] == p {
					continue
				}
				if !next.Heard || !was.accepts(before.Pods[k], p) {
					return nil, false
				}
				versions = append(versions, p)
			}
		}
	}
	return versions, true
}

// accepts reports whether next is another version of a pod of the API server that the state
// has, and no mirror pod.
func (s *State) accepts(had, next *v1.Pod) bool {
	p := s.Pods[next.UID]
	same := had.UID == next.UID && had.Namespace == next.Namespace && had.Name == next.Name
	return p != nil && p.Source == pod.SourceAPI && p.from == had && same && !pod.IsMirror(next)
}

// replace is the state before with other versions of some pods.
func (m *merger) replace(versions []*v1.Pod) State {
	next := m.was
	next.listings, next.Only = m.next.listings, make([]types.UID, 0, len(versions))
	if len(versions) == 0 {
		return next
	}
	next.Pods = maps.Clone(m.was.Pods)
	for _, from := range versions {
		next.Pods[from.UID] = m.claimed(pod.SourceAPI, Entry{}, from)
		next.Only = append(next.Only, from.UID)
	}
	slices.Sort(next.Only)
	return next
}
