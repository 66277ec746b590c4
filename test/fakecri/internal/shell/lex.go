// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"fmt"
	"strings"
)

// token is a word, or an operator when op is set.
type token struct {
	op    string // ";", "&&", "||", "&", ">", ">>", ">&2", "2>", ""
	parts []part // the word
}

// part is a piece of a word: quoted pieces are never expanded when single.
type part struct {
	text   string
	expand bool
}

// plain returns the word as written and whether no part of it was quoted.
func (t token) plain() (string, bool) {
	if t.op != "" || len(t.parts) != 1 || !t.parts[0].expand {
		return "", false
	}
	return t.parts[0].text, true
}

// operators are tried in this order, so longer ones come first.
var operators = []string{"2>&1", "1>&2", "2>", ">&2", ">>", "&&", "||", ">", ";", "\n", "&"}

func lex(script string) ([]token, error) {
	var (
		out  []token
		word []part
	)
	flush := func() {
		if word != nil {
			out = append(out, token{parts: word})
			word = nil
		}
	}
	add := func(text string, expand bool) {
		if n := len(word); n > 0 && word[n-1].expand == expand {
			word[n-1].text += text
			return
		}
		word = append(word, part{text: text, expand: expand})
	}
next:
	for i := 0; i < len(script); {
		for _, op := range operators {
			// "2>&1" and "1>&2" are operators only at the start of a word.
			if !strings.HasPrefix(script[i:], op) || (op[0] >= '0' && op[0] <= '9' && word != nil) {
				continue
			}
			flush()
			i += len(op)
			switch op {
			case "\n":
				op = ";"
			case "1>&2":
				op = ">&2"
			case "2>&1":
				continue next
			}
			out = append(out, token{op: op})
			continue next
		}
		switch c := script[i]; c {
		case ' ', '\t', '\r':
			flush()
			i++
		case '\'', '"':
			end := strings.IndexByte(script[i+1:], c)
			if end < 0 {
				return nil, fmt.Errorf("unterminated quote %q", script[i:])
			}
			text := script[i+1 : i+1+end]
			// A quoted part keeps its own entry, so that an empty one is a word
			// and a single-quoted one is not expanded.
			if c == '"' && text != "" {
				add(text, true)
				word = append(word, part{})
			} else {
				word = append(word, part{text: text})
			}
			i += end + 2
		case '\\':
			if i+1 < len(script) {
				add(script[i+1:i+2], false)
			}
			i += 2
		case '#':
			if word == nil {
				for i < len(script) && script[i] != '\n' {
					i++
				}
				continue
			}
			add("#", true)
			i++
		default:
			add(script[i:i+1], true)
			i++
		}
	}
	flush()
	return out, nil
}
