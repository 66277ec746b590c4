// SPDX-License-Identifier: Apache-2.0

package usage

import "time"

// How rates are made: over at least a second, or the clock's grain would show,
// and from a reading kept for ten, upstream's housekeeping interval, so that
// many who ask at once see the same.
const (
	leastWindow = time.Second
	keepWindow  = 10 * time.Second
	// forget drops cgroups that were not read for so long.
	forget = 10 * time.Minute
)

type sample struct {
	usage uint64
	at    time.Time
	rate  *uint64
	seen  time.Time
}

// Rates remembers one reading of each cgroup to make rates from. It is not safe
// for concurrent use.
type Rates struct {
	known map[string]*sample
	swept time.Time
}

// NewRates knows nothing yet.
func NewRates() *Rates { return &Rates{known: map[string]*sample{}} }

// Rate takes a reading of CPU time in nanoseconds and returns how much was used
// per second, in nanoseconds, since one before; nil while there was none.
func (r *Rates) Rate(cgroup string, usage uint64, now time.Time) *uint64 {
	s := r.known[cgroup]
	if s == nil || usage < s.usage || now.Before(s.at) { // another cgroup of that name, or the clock was set
		r.known[cgroup] = &sample{usage: usage, at: now, seen: now}
		return nil
	}
	s.seen = now
	if passed := now.Sub(s.at); passed >= leastWindow {
		rate := uint64(float64(usage-s.usage) / passed.Seconds())
		s.rate = &rate
		if passed >= keepWindow {
			s.usage, s.at = usage, now
		}
	}
	return s.rate
}

// Sweep forgets cgroups that are gone.
func (r *Rates) Sweep(now time.Time) {
	if now.Sub(r.swept) < forget/2 && !now.Before(r.swept) {
		return
	}
	r.swept = now
	for name, s := range r.known {
		if now.Sub(s.seen) > forget {
			delete(r.known, name)
		}
	}
}
