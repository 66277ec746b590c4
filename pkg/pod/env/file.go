// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"strings"
)

// FileValues are the values of the wanted keys in an env file: lines NAME='value', the
// value taken literally and possibly over several lines, comments from # on. A blank
// before the opening quote makes the value empty, as in a shell; the first definition
// counts. The error says which line cannot be read; the values are those of the lines
// before it.
func FileValues(content []byte, wanted map[string]bool) (map[string]string, error) {
	values := map[string]string{}
	rest := strings.TrimSuffix(strings.ReplaceAll(string(content), "\r\n", "\n"), "\r")
	for number := 1; rest != "" && len(values) < len(wanted); number++ {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		line = strings.TrimLeft(line, " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			return values, fmt.Errorf("line %d: missing '='", number)
		case strings.TrimRight(name, " \t") == "":
			return values, fmt.Errorf("line %d: empty variable name", number)
		case strings.TrimRight(name, " \t") != name:
			return values, fmt.Errorf("line %d: white space before '='", number)
		}
		if strings.HasPrefix(value, " ") || strings.HasPrefix(value, "\t") {
			keep(values, wanted, name, "")
			continue
		}
		value, ok = strings.CutPrefix(value, "'")
		if !ok {
			return values, fmt.Errorf("line %d: value must be enclosed in single quotes", number)
		}
		value, after, ok := strings.Cut(value, "'")
		if !ok {
			var more string
			if more, rest, ok = strings.Cut(rest, "'"); !ok {
				return values, fmt.Errorf("line %d: unclosed single quote", number)
			}
			value += "\n" + more
			after, rest, _ = strings.Cut(rest, "\n")
			number += strings.Count(value, "\n")
		}
		if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
			return values, fmt.Errorf("line %d: unexpected content after the closing quote", number)
		}
		keep(values, wanted, name, value)
	}
	return values, nil
}

// keep copies, lest a value of a few bytes keep the file in memory.
func keep(values map[string]string, wanted map[string]bool, name, value string) {
	if _, ok := values[name]; !ok && wanted[name] {
		values[strings.Clone(name)] = strings.Clone(value)
	}
}
