// SPDX-License-Identifier: Apache-2.0

package env

import (
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzExpand compares with expansion character by character.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "$(A)", "$$(A)", "$($(A)", "$(B)$(C)", "$(", "a$", "é$(A)é$é", "$()", strings.Repeat("$(", 100), strings.Repeat("$(B)", 100)} {
		f.Add(s, "1", "$(A)")
	}
	f.Fuzz(func(t *testing.T, s, a, b string) {
		lookup := func(name string) (string, bool) {
			v, ok := map[string]string{"A": a, "B": b}[name]
			return v, ok
		}
		const most = 64 << 10
		var got string
		var err error
		fuzzing.Allocates(t, 512<<10+8*uint64(most+len(s)+len(a)+len(b)), func() {
			fuzzing.Spends(t, time.Second, func() { got, err = Expand(s, most, lookup) })
		})
		want := expandPlainly(s, lookup)
		if len(want) > most {
			if err == nil || got != "" {
				t.Errorf("%d bytes instead of an error", len(got))
			}
			return
		}
		if got != want || err != nil {
			t.Errorf("Expand(%q) = %q, %v; want %q", s, got, err, want)
		}
	})
}

// expandPlainly is the rule as it is written for users: $(NAME) up to the next ), $$ for $.
func expandPlainly(s string, lookup func(string) (string, bool)) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		out = append(out, s[i])
		if s[i] != '$' || i+1 == len(s) {
			continue
		}
		if s[i+1] == '$' {
			i++
			continue
		}
		name, _, ok := strings.Cut(s[i+1:], ")")
		if !ok || name == "" || name[0] != '(' {
			continue
		}
		if value, known := lookup(name[1:]); known {
			out = append(out[:len(out)-1], value...)
		} else {
			out = append(out, name+")"...)
		}
		i += len(name) + 1
	}
	return string(out)
}

func FuzzFileValues(f *testing.F) {
	for _, s := range []string{
		"", "K='v'", "K='a\n# b\nc' # d\nL='w'", "K= 'v'", "K=v", "K", "='v'", "K ='v'", "K='v", "L='v\nw'x", "K='v'\r\n", "export K='v'\nK='w'", "# K\n\n K='v'",
	} {
		f.Add([]byte(s))
	}
	wanted := map[string]bool{"K": true, "L": true}
	f.Fuzz(func(t *testing.T, content []byte) {
		var values map[string]string
		var err error
		fuzzing.Allocates(t, 512<<10+8*uint64(len(content)), func() {
			fuzzing.Spends(t, time.Second, func() { values, err = FileValues(content, wanted) })
		})
		unix := strings.ReplaceAll(string(content), "\r\n", "\n")
		for name, value := range values {
			if !wanted[name] || strings.Contains(value, "'") || value != "" && !strings.Contains(unix, name+"='"+value+"'") {
				t.Errorf("%s is %q in %q", name, value, content)
			}
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		// The written form of what was read is read the same.
		var again strings.Builder
		for name, value := range values {
			again.WriteString(name + "='" + value + "'\n")
		}
		for name, value := range values {
			if got, err := FileValues([]byte(again.String()), wanted); err != nil || got[name] != value && !strings.Contains(value, "\r") {
				t.Errorf("%s was %q and is now %q, %v", name, value, got[name], err)
			}
		}
	})
}
