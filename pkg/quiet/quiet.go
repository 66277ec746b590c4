// SPDX-License-Identifier: Apache-2.0

// Package quiet bounds what others may have this process write to its log: how many
// lines, and how long what they say is in them. Limit decides only, and time is an
// input; Log is a logger that goes by it.
package quiet

import (
	"cmp"
	"fmt"
	"time"
	"unicode/utf8"
)

const (
	// second is the period of a Limit that has none.
	second = time.Second
	// most is how many lines are written within a period, whatever their origins.
	most = 4
	// known is how many kinds of lines are counted separately; all others count as one.
	known = 1024
)

// Limit decides which lines are written. The zero value is ready for use, by one
// goroutine at a time.
type Limit struct {
	// Period is how often a line is written that one origin causes again and again; a
	// second when zero.
	Period time.Duration

	began   time.Time // of the period that written counts for
	written int
	kinds   map[string]*kind
}

type kind struct {
	last       time.Time
	suppressed int
}

// Allow reports whether a line may be written now, and how many of its kind were not
// since the last that was. A kind is what is said and who causes it.
func (l *Limit) Allow(of string, now time.Time) (ok bool, suppressed int) {
	if l.kinds == nil {
		l.kinds = map[string]*kind{}
	}
	period := l.period()
	// A clock that is set back begins a period as well.
	if age := now.Sub(l.began); age < 0 || age >= period {
		l.began, l.written = now, 0
		l.tidy(now)
	}
	k := l.kinds[of]
	if k == nil {
		if len(l.kinds) >= known {
			of = ""
		}
		if k = l.kinds[of]; k == nil {
			k = &kind{last: now.Add(-period)}
			l.kinds[of] = k
		}
	}
	if age := now.Sub(k.last); age >= 0 && age < period || l.written >= most {
		k.suppressed++
		return false, 0
	}
	suppressed = k.suppressed
	k.last, k.suppressed = now, 0
	l.written++
	return true, suppressed
}

func (l *Limit) period() time.Duration {
	return cmp.Or(l.Period, second)
}

// tidy forgets kinds of which nothing is left to say.
func (l *Limit) tidy(now time.Time) {
	period := l.period()
	for name, k := range l.kinds {
		if age := now.Sub(k.last); (age < 0 || age >= period) && k.suppressed == 0 {
			delete(l.kinds, name)
		}
	}
}

// Cut shortens a text to so many bytes, at a character's end, and says how long it
// was.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > 0 && most-end < utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:end], len(text))
}
