package env

import "strings"

// Expand replaces references $(NAME) by their values. A name that lookup does not know
// stays as it is written; $$ stands for $, so $$(NAME) is the text $(NAME).
func Expand(s string, lookup func(name string) (string, bool)) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i:]
		switch s[1] {
		case '$':
			b.WriteByte('$')
			s = s[2:]
		case '(':
			end := strings.IndexByte(s, ')')
			if end < 0 {
				b.WriteString("$(")
				s = s[2:]
				continue
			}
			if value, ok := lookup(s[2:end]); ok {
				b.WriteString(value)
			} else {
				b.WriteString(s[:end+1])
			}
			s = s[end+1:]
		default:
			b.WriteByte('$')
			s = s[1:]
		}
	}
}

// ExpandAll expands each element of a command or of its arguments with the container's
// environment.
func ExpandAll(list []string, vars []Var) []string {
	if list == nil {
		return nil
	}
	values := make(map[string]string, len(vars))
	for _, v := range vars {
		values[v.Name] = v.Value
	}
	lookup := func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = Expand(s, lookup)
	}
	return out
}
