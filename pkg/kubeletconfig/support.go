// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"slices"
	"strings"
)

// Level says what Sextant does with a setting.
type Level string

const (
	// Honoured: Sextant acts on the setting as the kubelet does.
	Honoured Level = "honoured"
	// Warned: the setting is accepted and has no effect yet; [Load] warns when
	// it is changed from its default, and at the default too where a kubelet
	// does something by default that Sextant does not.
	Warned Level = "warned"
	// Partly: the setting has an effect, but not all that it has in a kubelet;
	// [Load] warns as for Warned.
	Partly Level = "partly"
	// Refused: ignoring the setting would be unsafe, so [Load] fails when it is
	// changed from its default.
	Refused Level = "refused"
)

// Support is the printable form of one line of the support tables.
type Support struct {
	// Name is a field path, a flag with its dashes, or a feature gate.
	Name  string `json:"name"`
	Level Level  `json:"level"`
	// Values are those that are honoured although others are not.
	Values []string `json:"values,omitempty"`
	// Reason says what happens instead; empty when all of it is honoured.
	Reason string `json:"reason,omitempty"`
	// Field is the field behind a flag, empty for a flag of its own.
	Field string `json:"field,omitempty"`
	// Deprecated says why the flag is going away, empty when it is not.
	Deprecated string `json:"deprecated,omitempty"`
	// Default is the default as text; of flags and gates.
	Default string `json:"default,omitempty"`
	// Usage is one line of explanation; of flags only.
	Usage string `json:"usage,omitempty"`
}

// FieldSupport returns the support of every field of KubeletConfiguration, in
// the order in which the type declares them.
func FieldSupport() []Support {
	out := make([]Support, 0, len(fieldTable))
	for _, r := range fieldTable {
		out = append(out, Support{Name: r.path, Level: r.level, Values: r.values, Reason: r.reason})
	}
	return out
}

// FlagSupport returns the support of every flag, sorted by name. A flag with a
// field behind it has the field's support.
func FlagSupport() []Support {
	var out []Support
	defaults := flagDefaults()
	for _, r := range flagRows() {
		s := Support{Name: "--" + r.name, Level: r.level, Reason: r.reason, Field: r.field,
			Deprecated: r.deprecation(), Default: defaults[r.name], Usage: r.usage}
		if r.field != "" {
			f := fieldIndex()[r.field]
			s.Level, s.Values, s.Reason = f.level, f.values, f.reason
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Support) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// GateSupport returns the support of the feature gates that touch a node. A
// gate with Values ["true"] cannot be switched off: what it stands for is done.
func GateSupport() []Support {
	var out []Support
	for _, g := range Gates() {
		if g.Node {
			s := supportOfGate(g.Name)
			s.Default = fmt.Sprint(g.Default)
			out = append(out, s)
		}
	}
	return out
}

// fieldRow is one line of the field table.
type fieldRow struct {
	path  string
	level Level
	// values, when given, are honoured; the level is for all others.
	values []string
	reason string
	// byDefault: the default is not honoured either, which [Load] always says.
	byDefault bool
}
