// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// oneOf checks an enumeration.
func oneOf[T ~string](at *field.Path, value T, allowed ...T) field.ErrorList {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return field.ErrorList{field.NotSupported(at, value, allowed)}
}

// inRange checks a number.
func inRange(at *field.Path, value, low, high int64) field.ErrorList {
	if value < low || value > high {
		return field.ErrorList{field.Invalid(at, value, fmt.Sprintf("must be between %d and %d", low, high))}
	}
	return nil
}

// localPath checks a path relative to a volume.
func localPath(at *field.Path, p string) field.ErrorList {
	if p == "" {
		return nil
	}
	if path.IsAbs(p) {
		return field.ErrorList{field.Invalid(at, p, "must be a relative path")}
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
		}
	}
	return nil
}

// exactlyOne checks a choice between fields.
func exactlyOne(at *field.Path, set map[string]bool) field.ErrorList {
	var chosen []string
	for _, name := range sets.List(sets.KeySet(set)) {
		if set[name] {
			chosen = append(chosen, name)
		}
	}
	switch len(chosen) {
	case 0:
		return field.ErrorList{field.Required(at, "must specify one of: "+strings.Join(sets.List(sets.KeySet(set)), ", "))}
	case 1:
		return nil
	}
	return field.ErrorList{field.Forbidden(at, "may not specify more than one of: "+strings.Join(chosen, ", "))}
}
