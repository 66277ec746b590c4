// SPDX-License-Identifier: Apache-2.0

package pleg

import "testing"

// TestABurstIsOneMoreReading: calls while a pod is being read share the next reading, and
// no reading begins that was not asked for.
func TestABurstIsOneMoreReading(t *testing.T) {
	r := newReaders()
	shared, p, first := r.ask("a", listed())
	if !first {
		t.Fatal("nothing runs, and the caller is not to run the reading")
	}
	if r.begin(p) != shared {
		t.Fatal("another reading began than was asked for")
	}
	next, _, first := r.ask("a", listed())
	if first || next == shared {
		t.Fatal("the call shares a reading that has begun before")
	}
	for range 20 {
		if again, _, first := r.ask("a", listed()); again != next || first {
			t.Fatal("a further call does not share the next reading")
		}
	}
	if _, _, first := r.ask("b", listed()); !first {
		t.Error("another pod's reading waits")
	}
	if r.begin(p) != next {
		t.Error("the next reading is not the one they share")
	}
	if r.begin(p) != nil || r.begun("a") != 2 {
		t.Errorf("%d readings began for all of them", r.begun("a"))
	}
	if _, _, first := r.ask("a", listed()); !first {
		t.Error("nothing runs any more, and the caller is not to run the reading")
	}
}
