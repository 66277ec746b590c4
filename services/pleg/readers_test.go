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
	if r.begin(p) != nil {
		t.Error("a third reading began for all of them")
	}
	if _, _, first := r.ask("a", listed()); !first {
		t.Error("nothing runs any more, and the caller is not to run the reading")
	}
}

// TestANoticeIsAnsweredByTheNextReading, whoever asks for it, and by none that had begun.
func TestANoticeIsAnsweredByTheNextReading(t *testing.T) {
	about := func(container string) question {
		q := newQuestion()
		q.of.containers[container] = "s"
		return q
	}
	r := newReaders()
	_, p, _ := r.ask("a", about("0"))
	r.begin(p)
	one, two := r.note("a", about("1")), r.note("a", about("2"))
	if r.taken(one) || r.taken(two) {
		t.Fatal("a reading that had begun before is said to answer it")
	}
	r.ask("a", about("3"))
	next := r.begin(p)
	if !r.taken(one) || !r.taken(two) {
		t.Error("the next reading is not said to answer it")
	}
	if asked := next.question.of.containers; len(asked) != 3 {
		t.Errorf("the next reading asks about %v", asked)
	}
	r.ask("a", about("4"))
	if asked := r.begin(p).question.of.containers; len(asked) != 1 {
		t.Errorf("the one after that asks about %v", asked)
	}
}
