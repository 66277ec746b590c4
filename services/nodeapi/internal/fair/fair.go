// SPDX-License-Identifier: Apache-2.0

// Package fair shares out what is scarce among callers who are not identified: callers at
// one address leave some for those at others.
package fair

import (
	"net/netip"
	"sync"
)

// Share is an amount of something, in any unit. It is safe for concurrent use.
type Share struct {
	mu       sync.Mutex
	all, one int64
	used     int64
	by       map[netip.Prefix]int64
}

// New shares out an amount, of which one origin has at most a part.
func New(all, one int64) *Share {
	return &Share{all: all, one: one, by: map[netip.Prefix]int64{}}
}

// Take takes n for an origin; giveBack returns it, once. ok is false when there is not
// enough.
func (s *Share) Take(from netip.Prefix, n int64) (giveBack func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+n > s.all || s.by[from]+n > s.one {
		return nil, false
	}
	s.used += n
	s.by[from] += n
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.used -= n
		if s.by[from] -= n; s.by[from] == 0 {
			delete(s.by, from)
		}
	}), true
}

// Origin is what counts as one place: an IPv4 address, or the /64 that an IPv6 host chooses
// its addresses from. Whatever is no address with a port is one place.
func Origin(remote string) netip.Prefix {
	at, _ := netip.ParseAddrPort(remote) // the zero value for what is none
	addr, bits := at.Addr().Unmap().WithZone(""), 64
	if addr.Is4() {
		bits = 32
	}
	prefix, _ := addr.Prefix(bits) // likewise
	return prefix
}
