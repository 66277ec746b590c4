// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"maps"
	"slices"
)

// Hint is a set of NUMA nodes that could serve a request.
type Hint struct {
	// Affinity 0: any node.
	Affinity Mask
	// Preferred: no fewer nodes could serve it.
	Preferred bool
}

// Hints are a provider's, by resource. A nil list, or no resource at all, is no opinion;
// an empty list that is not nil says that no set of nodes can serve the request.
type Hints map[string][]Hint

// merged is a selection of one hint of each resource, merged: which hints they were does
// not matter any more.
type merged struct {
	affinity Mask
	// same is the affinity that all hints with one have; only kept while preferred.
	same      Mask
	preferred bool
}

func (m merged) with(h Hint) merged {
	m.preferred = m.preferred && h.Preferred && (h.Affinity == 0 || m.same == 0 || m.same == h.Affinity)
	if h.Affinity != 0 {
		m.affinity &= h.Affinity
		m.same = h.Affinity
	}
	if !m.preferred {
		m.same = 0
	}
	return m
}

// Merge returns the best of all selections of one hint per resource, and whether the
// policy admits it.
//
// A selection's affinity is what its hints have in common; it is preferred when all its
// hints are, and agree. Selections that come to the same are one, so the cost grows with
// the number of masks, not with the product of all lists.
func (p *Policy) Merge(all []Hints) (Hint, bool) {
	resources := p.opinions(all)
	widest := 0 // nodes that the neediest resource cannot do without
	selections := map[merged]struct{}{{affinity: p.all, preferred: true}: {}}
	for _, hints := range resources {
		widest = max(widest, fewestNodes(hints))
		next := map[merged]struct{}{}
		for selection := range selections {
			for _, h := range hints {
				next[selection.with(h)] = struct{}{}
			}
		}
		selections = next
	}
	best := Hint{}
	for selection := range selections {
		h := Hint{selection.affinity, selection.preferred}
		if h.Affinity != 0 && (best.Affinity == 0 || p.better(h, best, widest)) {
			best = h
		}
	}
	if best.Affinity == 0 {
		best = Hint{Affinity: p.all}
	}
	if p.name == SingleNUMANode && best.Affinity == p.all {
		best.Affinity = 0
	}
	return best, best.Preferred || p.name == BestEffort
}

// opinions are the lists of hints to select from, one per resource.
func (p *Policy) opinions(all []Hints) [][]Hint {
	var lists [][]Hint
	for _, hints := range all {
		for _, resource := range slices.Sorted(maps.Keys(hints)) {
			list := hints[resource]
			switch {
			case list == nil:
				continue // the same as any node, preferred
			case len(list) == 0:
				list = []Hint{{}}
			}
			if p.name == SingleNUMANode {
				list = slices.DeleteFunc(slices.Clone(list), func(h Hint) bool { return !h.Preferred || h.Affinity.Len() > 1 })
			}
			lists = append(lists, list)
		}
	}
	return lists
}

// fewestNodes is the size of the narrowest affinity in the list, 0 when it has none.
func fewestNodes(hints []Hint) int {
	fewest := 0
	for _, h := range hints {
		if n := h.Affinity.Len(); n > 0 && (fewest == 0 || n < fewest) {
			fewest = n
		}
	}
	return fewest
}

// better reports whether a is to be chosen before b. What is preferred comes first; of
// what is not, the affinity whose size is that of the neediest resource, then smaller ones
// from the largest down, then larger ones.
func (p *Policy) better(a, b Hint, widest int) bool {
	if a.Preferred != b.Preferred {
		return a.Preferred
	}
	m, n := a.Affinity.Len(), b.Affinity.Len()
	if !a.Preferred && m != n && min(m, n) < widest {
		// One of them is too small: the other is better, unless it is too large.
		return (max(m, n) <= widest) == (m > n)
	}
	if m == n && p.distances != nil {
		if x, y := p.apart(a.Affinity), p.apart(b.Affinity); x != y {
			return x < y
		}
	}
	return a.Affinity.Narrower(b.Affinity)
}

// apart is the sum of the distances between all nodes of a mask, itself included.
func (p *Policy) apart(m Mask) uint64 {
	var sum uint64
	for _, from := range m.IDs() {
		for _, to := range m.IDs() {
			if distances := p.distances[from]; to < len(distances) {
				sum += distances[to]
			}
		}
	}
	return sum
}
