// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Normalizer replaces what must differ between two nodes.
type Normalizer struct {
	literals []literal
}

type literal struct {
	text, placeholder string
	// number finds a text of digits alone where it is a number, and not a part of an ID.
	number *regexp.Regexp
}

func newLiteral(text, placeholder string) literal {
	l := literal{text: text, placeholder: placeholder}
	if _, err := strconv.Atoi(text); err == nil {
		l.number = regexp.MustCompile(`\b` + text + `\b`)
	}
	return l
}

func (l literal) replace(s string) string {
	if l.number != nil {
		return l.number.ReplaceAllString(s, l.placeholder)
	}
	return strings.ReplaceAll(s, l.text, l.placeholder)
}

// NewNormalizer replaces the keys of a map by their values, longer keys first,
// and whatever looks like an id, a time, a duration or an address.
func NewNormalizer(names map[string]string) *Normalizer {
	n := &Normalizer{}
	for text, placeholder := range names {
		if text != "" {
			n.literals = append(n.literals, newLiteral(text, placeholder))
		}
	}
	slices.SortFunc(n.literals, func(a, b literal) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.text, b.text))
	})
	return n
}

var patterns = []struct {
	find        *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}(-|_)[0-9a-f]{4}(-|_)[0-9a-f]{4}(-|_)[0-9a-f]{4}(-|_)[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}\b`), "kube-api-access-RANDOM"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?(µs|ms)\b|\b(\d+h)?(\d+m)?\d+\.\d+s\b`), "DURATION"},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+:(3[2-9]|[456]\d)\d{3}\b`), "IP:PORT"},
	{regexp.MustCompile(`\b(10|172|192)\.\d+\.\d+\.\d+\b`), "IP"},
	{regexp.MustCompile(`\bused: \d+`), "used: AMOUNT"},
	{regexp.MustCompile(`\bveth[0-9a-f]+\b`), "VETH"},
}

// hash finds what is written in hexadecimal and long: the digest of content when
// it says so, which is the same everywhere, else the id of a container or a
// static pod.
var hash = regexp.MustCompile(`(sha256:|\bpod|\b)([0-9a-f]{64}|[0-9a-f]{32})\b`)

func id(hexadecimal string) string {
	if len(hexadecimal) == 32 {
		return "UID"
	}
	return "ID"
}

// Number returns the placeholder of a number that is a name, such as a port, or
// the number.
func (n *Normalizer) Number(s string) string {
	for _, l := range n.literals {
		if l.text == s {
			return l.placeholder
		}
	}
	return s
}

// Text returns s with everything that must differ replaced.
func (n *Normalizer) Text(s string) string {
	for _, l := range n.literals {
		s = l.replace(s)
	}
	s = hash.ReplaceAllStringFunc(s, func(found string) string {
		if strings.HasPrefix(found, "sha256:") {
			return found
		}
		if pod, ok := strings.CutPrefix(found, "pod"); ok {
			return "pod" + id(pod)
		}
		return id(found)
	})
	for _, p := range patterns {
		s = p.find.ReplaceAllString(s, p.replacement)
	}
	return s
}
