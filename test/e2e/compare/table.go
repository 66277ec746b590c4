// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bufio"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Sides of a difference, as diff writes them.
const (
	OnlyReference = '-'
	OnlySextant   = '+'
)

// Difference is a fact that only one of the two nodes states.
type Difference struct {
	Side byte
	Fact string
}

// String is the difference as a line of diff.
func (d Difference) String() string { return string(d.Side) + " " + d.Fact }

// Diff returns the facts that only one side states, sorted by fact, so that two
// values of one thing stand together.
func Diff(reference, sextant []string) []Difference {
	var all []Difference
	add := func(side byte, facts, other []string) {
		there := make(map[string]bool, len(other))
		for _, f := range other {
			there[f] = true
		}
		for _, f := range slices.Compact(slices.Sorted(slices.Values(facts))) {
			if !there[f] {
				all = append(all, Difference{side, f})
			}
		}
	}
	add(OnlyReference, reference, sextant)
	add(OnlySextant, sextant, reference)
	slices.SortStableFunc(all, func(a, b Difference) int { return strings.Compare(a.Fact, b.Fact) })
	return all
}

// Entry is a line of a table: differences that are meant, and why.
type Entry struct {
	Side    byte
	Maybe   bool // it may occur, and need not
	Pattern string
	Reason  string
	Line    int
}

// String is the entry as its table has it.
func (e Entry) String() string {
	s := string(e.Side) + " " + e.Pattern
	if e.Maybe {
		s = "?" + s
	}
	return s
}

// Table is what ParseTable reads.
type Table []Entry

// ParseTable reads a table; the form is in the package's comment. Every entry
// needs a reason, and one that is listed twice is refused.
func ParseTable(text string) (Table, error) {
	var table Table
	for line, err := range entries(text) {
		if err != nil {
			return nil, err
		}
		e := Entry{Reason: line.reason, Line: line.number}
		var difference string
		difference, e.Maybe = strings.CutPrefix(line.text, "?")
		if len(difference) < 3 || difference[1] != ' ' || difference[0] != OnlyReference && difference[0] != OnlySextant {
			return nil, fmt.Errorf("line %d: %q is not a sign and a pattern", line.number, difference)
		}
		e.Side, e.Pattern = difference[0], strings.TrimSpace(difference[2:])
		if e.Reason == "" {
			return nil, fmt.Errorf("line %d: %q has no reason above it", line.number, difference)
		}
		if slices.ContainsFunc(table, func(o Entry) bool { return o.Side == e.Side && o.Pattern == e.Pattern }) {
			return nil, fmt.Errorf("line %d: %q is listed twice", line.number, difference)
		}
		table = append(table, e)
	}
	return table, nil
}

// entry is a line of a table, and the comment above it or above the lines before it.
type entry struct {
	text, reason string
	number       int
}

// entries are the lines of a table that are neither empty nor comments.
func entries(text string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		var reason []string
		fresh := true // the comment being read is a new one
		lines := bufio.NewScanner(strings.NewReader(text))
		for number := 1; lines.Scan(); number++ {
			line := strings.TrimSpace(lines.Text())
			if comment, ok := strings.CutPrefix(line, "#"); ok {
				if fresh {
					reason, fresh = nil, false
				}
				reason = append(reason, strings.TrimSpace(comment))
				continue
			}
			fresh = true
			if line != "" && !yield(entry{line, strings.TrimSpace(strings.Join(reason, " ")), number}, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(entry{}, err)
		}
	}
}

// Report is a comparison judged by a table.
type Report struct {
	// Explained are the differences that the table gives a reason for, by entry.
	Explained map[Entry][]Difference
	// Unlisted are the others.
	Unlisted []Difference
	// Stale are the entries that explain nothing any more.
	Stale []Entry

	table Table
}

// Judge looks up each difference; the first entry that matches explains it.
func (t Table) Judge(differences []Difference) Report {
	r := Report{Explained: map[Entry][]Difference{}, table: t}
	for _, d := range differences {
		i := slices.IndexFunc(t, func(e Entry) bool { return e.Side == d.Side && Match(e.Pattern, d.Fact) })
		if i < 0 {
			r.Unlisted = append(r.Unlisted, d)
			continue
		}
		r.Explained[t[i]] = append(r.Explained[t[i]], d)
	}
	for _, e := range t {
		if len(r.Explained[e]) == 0 && !e.Maybe {
			r.Stale = append(r.Stale, e)
		}
	}
	return r
}

// OK reports whether every difference is listed and every entry needed.
func (r Report) OK() bool { return len(r.Unlisted) == 0 && len(r.Stale) == 0 }

// String says what differs and why, then what is wrong with that.
func (r Report) String() string {
	var b strings.Builder
	reason := ""
	for _, e := range r.table {
		found := r.Explained[e]
		if len(found) == 0 {
			continue
		}
		if e.Reason != reason {
			reason = e.Reason
			fmt.Fprintf(&b, "# %s\n", reason)
		}
		if len(found) == 1 {
			fmt.Fprintf(&b, "  %s\n", found[0])
		} else {
			fmt.Fprintf(&b, "  %s (%d)\n", e, len(found))
		}
	}
	if len(r.Unlisted) > 0 {
		fmt.Fprintf(&b, "UNLISTED: %d differences without a reason (- only the reference kubelet, + only Sextant)\n", len(r.Unlisted))
		for _, d := range r.Unlisted {
			fmt.Fprintf(&b, "  %s\n", d)
		}
	}
	if len(r.Stale) > 0 {
		fmt.Fprintf(&b, "STALE: %d entries that explain nothing any more\n", len(r.Stale))
		for _, e := range r.Stale {
			fmt.Fprintf(&b, "  line %d: %s\n", e.Line, e)
		}
	}
	return b.String()
}

// Match reports whether text has the form of a pattern, in which a star stands for
// any text, also none.
func Match(pattern, text string) bool {
	first, rest, starred := strings.Cut(pattern, "*")
	if !starred {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, part)
		}
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text, rest = text[i+len(part):], after
	}
}

func matchAny(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Match(p, text) })
}
