// SPDX-License-Identifier: Apache-2.0

// Package problem turns the error of a manifest into one clear message that
// names the field. It is pure.
package problem

import (
	"errors"
	"regexp"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sextant-node/sextant/pkg/pattern"
	"github.com/sextant-node/sextant/services/config/internal/merge"
)

// maxMessage bounds a message; a manifest full of garbage has many errors.
const maxMessage = 1024

// Of makes the problem of an origin from the error its manifest gave.
func Of(origin string, err error) merge.Problem {
	text := strings.Join(strings.Fields(err.Error()), " ")
	text = strings.TrimPrefix(text, "manifest URL "+origin+": ")
	text = strings.TrimPrefix(text, "manifest "+origin+": ")
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + " …"
	}
	return merge.Problem{Origin: origin, Field: fieldOf(err, text), Message: text}
}

var (
	// named matches the errors of strict decoding, such as: unknown field "spec.x". Of a
	// key given twice YAML's has the last part only, and the line.
	named = pattern.Lazy(`(?:(?:unknown|duplicate) field|line \d+: key) "([^"]+)"`)
	// typed matches the decoder's errors about a value of the wrong type.
	typed = pattern.Lazy(`(?:Go struct field|cannot unmarshal \S+ into) \w+\.([\w.\[\]]+)`)
	// item matches the place of a pod in a list.
	item = pattern.Lazy(`^(items\[\d+\]) \([^)]*\): `)
	// leading matches a message that begins with a field path.
	leading = pattern.Lazy(`^(?:invalid pod: )?\[?((?:[a-z]\w*|items\[\d+\])(?:\.\w+|\[[^\]\s]*\])*): `)
	// prose are words that begin a message and are no field.
	prose = pattern.Lazy(`^(?:error|invalid|json|yaml|strict|not|empty|larger|more|manifest)$`)
)

// fieldOf finds the first field an error names.
func fieldOf(err error, text string) string {
	if m := item().FindStringSubmatch(text); m != nil {
		if within := fieldOf(err, text[len(m[0]):]); within != "" {
			return m[1] + "." + within
		}
		return m[1]
	}
	if f := fieldError(err); f != nil {
		return f.Field
	}
	for _, shape := range []func() *regexp.Regexp{named, typed, leading} {
		if m := shape().FindStringSubmatch(text); m != nil && !prose().MatchString(m[1]) {
			return m[1]
		}
	}
	return ""
}

// fieldError finds the first field.Error in a tree of errors.
func fieldError(err error) *field.Error {
	var one *field.Error
	if errors.As(err, &one) {
		return one
	}
	var many utilerrors.Aggregate
	if !errors.As(err, &many) {
		return nil
	}
	for _, e := range many.Errors() {
		if errors.As(e, &one) {
			return one
		}
	}
	return nil
}
