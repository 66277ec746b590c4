// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"testing"
)

func TestShare(t *testing.T) {
	s := New(10, 4)
	a, b, c := Origin("10.0.0.1:1"), Origin("10.0.0.2:1"), Origin("[2001:db8::1]:1")
	first, ok := s.Take(a, 4)
	if !ok {
		t.Fatal("there is enough for one")
	}
	if _, ok := s.Take(Origin("10.0.0.1:2"), 1); ok {
		t.Error("one origin has more than its part")
	}
	if _, ok := s.Take(b, 4); !ok {
		t.Error("nothing is left for another")
	}
	if _, ok := s.Take(c, 3); ok {
		t.Error("more was given than there is")
	}
	if _, ok := s.Take(c, 2); !ok {
		t.Error("the rest is not given")
	}
	first()
	first() // which does nothing
	if _, ok := s.Take(a, 5); ok {
		t.Error("given back twice")
	}
	if _, ok := s.Take(a, 4); !ok {
		t.Error("what was given back is not there")
	}
	if len(s.by) != 3 {
		t.Errorf("%d origins are known, want 3", len(s.by))
	}
}

func TestOrigin(t *testing.T) {
	for _, same := range [][2]string{
		{"10.0.0.1:1", "10.0.0.1:65535"}, {"10.0.0.1:1", "[::ffff:10.0.0.1]:1"},
		{"[2001:db8::1]:1", "[2001:db8::ffff:1:2:3]:9"}, {"[fe80::1%eth0]:1", "[fe80::2%eth1]:1"}, {"@", ""}, {"", "10.0.0.1"},
	} {
		if Origin(same[0]) != Origin(same[1]) {
			t.Errorf("%q and %q are two places", same[0], same[1])
		}
	}
	for _, other := range [][2]string{
		{"10.0.0.1:1", "10.0.0.2:1"}, {"[2001:db8::1]:1", "[2001:db8:0:1::1]:1"}, {"[::1]:1", "127.0.0.1:1"}, {"", "0.0.0.0:1"},
	} {
		if Origin(other[0]) == Origin(other[1]) {
			t.Errorf("%q and %q are one place", other[0], other[1])
		}
	}
}
