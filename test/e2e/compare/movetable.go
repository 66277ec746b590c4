// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MoveRule says how the movements of some series on two nodes must agree.
//
//	equal FAMILY{label="pattern"} by label,label   each sum is the same on both
//	within N FAMILY                               and no more than N apart
//	factor N FAMILY                               and neither is more than N times the other
//	moves FAMILY                                  both went up, or both down
//	- FAMILY                                      only the reference's moved
//	+ FAMILY                                      only Sextant's moved
//	any FAMILY                                    not compared, for the reason above it
//
// Series are added up, per value of the labels after "by". All but "any" must have
// moved on the node, or nodes, of which they speak. The pattern of a label and a
// family may have stars; FAMILY_sum is the sum of a histogram.
type MoveRule struct {
	Verb   string
	Amount float64
	Family string
	Labels map[string]string
	By     []string
	Reason string
	Line   int

	text string
}

// MoveTable is what ParseMoveTable reads; the first rule that matches a series is its.
type MoveTable []MoveRule

var (
	moveLine  = regexp.MustCompile(`^(equal|moves|any|-|\+|within [0-9.]+|factor [0-9.]+) ([a-zA-Z0-9_:*]+)(?:\{(.*)\})?(?: by ([a-z_,]+))?$`)
	moveLabel = regexp.MustCompile(`^([a-z_]+)="([^"]*)"$`)
)

// ParseMoveTable reads a table: rules with comments, as the other tables have them.
// A rule whose verb is not "equal" needs a reason.
func ParseMoveTable(text string) (MoveTable, error) {
	var table MoveTable
	for line, err := range entries(text) {
		if err != nil {
			return nil, err
		}
		rule, err := parseRule(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line.number, err)
		}
		if slices.ContainsFunc(table, func(o MoveRule) bool { return o.text == rule.text }) {
			return nil, fmt.Errorf("line %d: %q is listed twice", line.number, line.text)
		}
		table = append(table, rule)
	}
	return table, nil
}

func parseRule(line entry) (MoveRule, error) {
	found := moveLine.FindStringSubmatch(line.text)
	if found == nil {
		return MoveRule{}, fmt.Errorf("%q is no rule", line.text)
	}
	verb, amount, _ := strings.Cut(found[1], " ")
	r := MoveRule{Verb: verb, Family: found[2], Labels: map[string]string{}, Reason: line.reason, Line: line.number, text: line.text}
	if r.Reason == "" && verb != "equal" {
		return r, fmt.Errorf("%q has no reason above it", line.text)
	}
	if amount != "" {
		var err error
		if r.Amount, err = strconv.ParseFloat(amount, 64); err != nil {
			return r, fmt.Errorf("%q: %w", line.text, err)
		}
	}
	if found[4] != "" {
		r.By = strings.Split(found[4], ",")
	}
	for _, l := range strings.Split(found[3], ",") {
		if found[3] == "" {
			break
		}
		pair := moveLabel.FindStringSubmatch(l)
		if pair == nil {
			return r, fmt.Errorf("%q: %q is no label with a pattern", line.text, l)
		}
		r.Labels[pair[1]] = pair[2]
	}
	return r, nil
}

func (r MoveRule) matches(s Series) bool {
	if !Match(r.Family, s.Name) {
		return false
	}
	for name, pattern := range r.Labels {
		if value, ok := s.Labels[name]; !ok || !Match(pattern, value) {
			return false
		}
	}
	return true
}

// group is what a series is added to.
func (r MoveRule) group(s Series) string {
	kept := map[string]string{}
	for _, name := range r.By {
		kept[name] = s.Labels[name]
	}
	return s.Name + braced(kept)
}

// Movement is what two nodes' series of one group moved by.
type Movement struct {
	Group              string
	Reference, Sextant float64
}

// String shows both amounts.
func (m Movement) String() string {
	return fmt.Sprintf("%s: %s on the reference, %s on Sextant", m.Group, number(m.Reference), number(m.Sextant))
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// MoveReport is two nodes' movements judged by a table.
type MoveReport struct {
	// Together are the families that moved on both nodes as a rule that compares says.
	Together []string
	// Apart are groups that did not move as their rule says.
	Apart []string
	// Unlisted are groups that moved and that no rule speaks of.
	Unlisted []Movement
	// Stale are rules of which nothing moved.
	Stale []MoveRule
}

// Judge compares the movements of the families that both nodes have; families that
// only one of them has are not its matter.
func (t MoveTable) Judge(reference, sextant Moves) MoveReport {
	both := families(reference)
	maps.DeleteFunc(both, func(name string, _ bool) bool { return !families(sextant)[name] })
	groups := make([]map[string]Movement, len(t)+1) // the last is of no rule
	add := func(moves Moves, to func(*Movement) *float64) {
		for _, s := range moves {
			i := slices.IndexFunc(t, func(r MoveRule) bool { return r.matches(s) })
			if i < 0 && strings.HasSuffix(s.Name, "_sum") || !both[s.Name] {
				continue // a sum is compared when a rule says so
			}
			group := s.String()
			if i < 0 {
				i = len(t)
			} else {
				group = t[i].group(s)
			}
			if groups[i] == nil {
				groups[i] = map[string]Movement{}
			}
			m := groups[i][group]
			m.Group = group
			*to(&m) += s.Value
			groups[i][group] = m
		}
	}
	add(reference, func(m *Movement) *float64 { return &m.Reference })
	add(sextant, func(m *Movement) *float64 { return &m.Sextant })
	return t.report(groups)
}

func (t MoveTable) report(groups []map[string]Movement) MoveReport {
	var r MoveReport
	together := map[string]bool{}
	for i, rule := range t {
		moved := false
		for _, name := range slices.Sorted(maps.Keys(groups[i])) {
			m := groups[i][name]
			if m.Reference == 0 && m.Sextant == 0 {
				continue
			}
			moved = true
			if wrong := rule.judge(m); wrong != "" {
				r.Apart = append(r.Apart, fmt.Sprintf("line %d: %s: %s", rule.Line, m, wrong))
				continue
			}
			if rule.compares() && m.Reference*m.Sextant > 0 {
				family, _, _ := strings.Cut(name, "{")
				together[strings.TrimSuffix(family, "_sum")] = true
			}
		}
		if !moved && rule.Verb != "any" {
			r.Stale = append(r.Stale, rule)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups[len(t)])) {
		if m := groups[len(t)][name]; m.Reference != 0 || m.Sextant != 0 {
			r.Unlisted = append(r.Unlisted, m)
		}
	}
	r.Together = slices.Sorted(maps.Keys(together))
	return r
}

// compares is whether what the rule finds in order has moved together.
func (r MoveRule) compares() bool {
	return slices.Contains([]string{"equal", "within", "factor", "moves"}, r.Verb)
}

// judge says what is wrong with a movement, of which one is not 0.
func (r MoveRule) judge(m Movement) string {
	a, b := m.Reference, m.Sextant
	switch r.Verb {
	case "equal":
		if a != b {
			return "not equal"
		}
	case "within":
		if math.Abs(a-b) > r.Amount {
			return "more than " + number(r.Amount) + " apart"
		}
	case "factor":
		if a*b <= 0 || math.Abs(a) > r.Amount*math.Abs(b) || math.Abs(b) > r.Amount*math.Abs(a) {
			return "not within a factor of " + number(r.Amount)
		}
	case "moves":
		if a*b <= 0 {
			return "not in one direction"
		}
	case "-":
		if b != 0 || a == 0 {
			return "not only the reference's"
		}
	case "+":
		if a != 0 || b == 0 {
			return "not only Sextant's"
		}
	}
	return ""
}

// OK reports whether everything moved as the table says, and the table has nothing else.
func (r MoveReport) OK() bool { return len(r.Apart)+len(r.Unlisted)+len(r.Stale) == 0 }

// String says how many families moved together, and what is wrong.
func (r MoveReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d families moved together: %s\n", len(r.Together), strings.Join(r.Together, " "))
	for _, what := range r.Apart {
		fmt.Fprintf(&b, "APART: %s\n", what)
	}
	for _, m := range r.Unlisted {
		fmt.Fprintf(&b, "UNLISTED: %s\n", m)
	}
	for _, rule := range r.Stale {
		fmt.Fprintf(&b, "STALE: line %d: %s did not move\n", rule.Line, rule.Family)
	}
	return b.String()
}

func families(moves Moves) map[string]bool {
	all := map[string]bool{}
	for _, s := range moves {
		all[s.Name] = true
	}
	return all
}
