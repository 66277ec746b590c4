// SPDX-License-Identifier: Apache-2.0

package feed

import "testing"

func TestBarrier(t *testing.T) {
	at := func(epoch string, n uint64) Revision { return Revision{Epoch: epoch, N: n} }
	for _, tt := range []struct {
		name     string
		barrier  Barrier
		now      Revision
		complete bool
		want     bool
	}{
		{"nothing was asked", Barrier{}, at("", 0), false, true},
		{"behind", NewBarrier(at("a", 5), at("a", 3)), at("a", 4), true, false},
		{"reached", NewBarrier(at("a", 5), at("a", 3)), at("a", 5), false, true},
		{"still in the former life", NewBarrier(at("b", 1), at("a", 9)), at("a", 9), true, false},
		{"in the life that answered", NewBarrier(at("b", 1), at("a", 9)), at("b", 1), false, true},
		{"a later life, not whole yet", NewBarrier(at("b", 1), at("b", 0)), at("c", 1), false, false},
		{"a later life", NewBarrier(at("b", 1), at("b", 0)), at("c", 1), true, true},
		{"a replica that had seen nothing", NewBarrier(at("b", 1), at("", 0)), at("", 0), false, false},
	} {
		if got := tt.barrier.Passed(tt.now, tt.complete); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
