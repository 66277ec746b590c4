// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Expand replaces references $(NAME) by their values. A name that lookup does not know
// stays as it is written; $$ stands for $, so $$(NAME) is the text $(NAME). The error says
// that the result would be longer than most bytes.
func Expand(s string, most int, lookup func(name string) (string, bool)) (string, error) {
	var b strings.Builder
	for closed := true; s != "" && b.Len() <= most; {
		i := strings.IndexByte(s, '$')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		s = s[i:]
		end := -1
		if s[1] == '(' && closed {
			end = strings.IndexByte(s, ')')
			closed = end >= 0
		}
		switch {
		case s[1] == '$':
			b.WriteByte('$')
			s = s[2:]
		case end < 0:
			b.WriteByte('$')
			s = s[1:]
		default:
			if value, ok := lookup(s[2:end]); ok {
				b.WriteString(value)
			} else {
				b.WriteString(s[:end+1])
			}
			s = s[end+1:]
		}
	}
	if b.Len() > most {
		return "", fmt.Errorf("longer than %d bytes", most)
	}
	return b.String(), nil
}

// CommandLine expands each element of a command and of its arguments with the
// container's environment. The error names the element that exceeds a limit.
func CommandLine(command, args []string, vars []Var) (expandedCommand, expandedArgs []string, err error) {
	var used budget
	for _, v := range vars {
		if err := used.add(v.Name, v.Value); err != nil {
			return nil, nil, ofVariable(v.Name, err)
		}
	}
	values := Values(vars)
	if expandedCommand, err = expandAll("command", command, values, &used); err != nil {
		return nil, nil, err
	}
	expandedArgs, err = expandAll("args", args, values, &used)
	return expandedCommand, expandedArgs, err
}

func expandAll(what string, list []string, values map[string]string, used *budget) ([]string, error) {
	if list == nil {
		return nil, nil
	}
	lookup := func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
	out := make([]string, len(list))
	for i, s := range list {
		expanded, err := Expand(s, MaxValue, lookup)
		if err == nil {
			err = used.add("", expanded)
		}
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", what, i, err)
		}
		out[i] = expanded
	}
	return out, nil
}

// Values are variables by their names; of two of one name the last counts.
func Values(vars []Var) map[string]string {
	values := make(map[string]string, len(vars))
	for _, v := range vars {
		values[v.Name] = v.Value
	}
	return values
}

// ProbeCommand is what an exec probe runs: references to variables that the container's
// specification gives a plain value are expanded, as by the kubelet. The error is
// CommandLine's.
func ProbeCommand(action *v1.ExecAction, c *v1.Container) ([]string, error) {
	var vars []Var
	if c != nil {
		for _, v := range c.Env {
			vars = append(vars, Var{Name: v.Name, Value: v.Value})
		}
	}
	command, _, err := CommandLine(action.Command, nil, vars)
	return command, err
}
