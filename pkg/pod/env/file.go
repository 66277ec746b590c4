package env

import (
	"fmt"
	"strings"
)

// FileValue is the value of a key in an env file: lines NAME='value', the value taken
// literally and possibly over several lines, comments from # on. A blank before the
// opening quote makes the value empty, as in a shell. "" also means that the key is not
// there; the first definition counts.
func FileValue(content []byte, key string) (string, error) {
	lines := strings.Split(strings.ReplaceAll(string(content), "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line, number := strings.TrimLeft(lines[i], " \t"), i+1
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			return "", fmt.Errorf("line %d: missing '='", number)
		case name == "":
			return "", fmt.Errorf("line %d: empty variable name", number)
		case strings.ContainsAny(name, " \t"):
			return "", fmt.Errorf("line %d: white space in or after the variable name", number)
		}
		if strings.HasPrefix(rest, " ") || strings.HasPrefix(rest, "\t") {
			if name == key {
				return "", nil
			}
			continue
		}
		value, ok := strings.CutPrefix(rest, "'")
		if !ok {
			return "", fmt.Errorf("line %d: value must be enclosed in single quotes", number)
		}
		for !strings.Contains(value, "'") {
			if i++; i >= len(lines) {
				return "", fmt.Errorf("line %d: unclosed single quote", number)
			}
			value += "\n" + lines[i]
		}
		value, after, _ := strings.Cut(value, "'")
		if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
			return "", fmt.Errorf("line %d: unexpected content after the closing quote", i+1)
		}
		if name == key {
			return value, nil
		}
	}
	return "", nil
}
