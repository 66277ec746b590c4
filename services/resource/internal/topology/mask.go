// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"iter"
	"math/bits"
)

// MaxNode is the highest NUMA node id that a Mask holds.
const MaxNode = 63

// Mask is a set of NUMA node ids; 0 is the empty set.
type Mask uint64

// MaskOf returns the set of these ids; an error names the one out of range.
func MaskOf(ids ...int) (Mask, error) {
	var m Mask
	for _, id := range ids {
		if id < 0 || id > MaxNode {
			return 0, fmt.Errorf("NUMA node %d: ids are 0 to %d", id, MaxNode)
		}
		m |= 1 << id
	}
	return m, nil
}

// Len is the number of ids in it.
func (m Mask) Len() int { return bits.OnesCount64(uint64(m)) }

// Has reports whether it has this id.
func (m Mask) Has(id int) bool { return id >= 0 && id <= MaxNode && m&(1<<id) != 0 }

// Covers reports whether it has every id of other.
func (m Mask) Covers(other Mask) bool { return other&^m == 0 }

// IDs are its ids, ascending.
func (m Mask) IDs() []int {
	ids := make([]int, 0, m.Len())
	for rest := m; rest != 0; rest &= rest - 1 {
		ids = append(ids, bits.TrailingZeros64(uint64(rest)))
	}
	return ids
}

// String gives the ids, as in [0 2].
func (m Mask) String() string { return fmt.Sprint(m.IDs()) }

// Subsets yields the sets that can be made of its ids, the empty one excepted: by size,
// and in lexicographic order of their ids within a size. Providers give hints in this order.
func (m Mask) Subsets() iter.Seq[Mask] {
	return func(yield func(Mask) bool) {
		ids := m.IDs()
		for size := 1; size <= len(ids); size++ {
			if !choose(ids, size, 0, yield) {
				return
			}
		}
	}
}

// choose yields chosen with size more of ids.
func choose(ids []int, size int, chosen Mask, yield func(Mask) bool) bool {
	if size == 0 {
		return yield(chosen)
	}
	for i := range len(ids) - size + 1 {
		if !choose(ids[i+1:], size-1, chosen|1<<ids[i], yield) {
			return false
		}
	}
	return true
}

// Narrower reports whether m has fewer ids than other, or as many and lower ones.
func (m Mask) Narrower(other Mask) bool {
	if m.Len() != other.Len() {
		return m.Len() < other.Len()
	}
	return m < other
}
