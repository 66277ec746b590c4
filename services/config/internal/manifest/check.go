// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// oneOf checks an enumeration.
func oneOf[T ~string](at *field.Path, value T, allowed ...T) field.ErrorList {
	switch {
	case slices.Contains(allowed, value):
		return nil
	case value == "":
		return field.ErrorList{field.Required(at, "")}
	}
	return field.ErrorList{field.NotSupported(at, value, allowed)}
}

// invalid is an error for each of the problems that a check of Kubernetes' libraries found.
func invalid(at *field.Path, value any, problems []string) (errs field.ErrorList) {
	for _, problem := range problems {
		errs = append(errs, field.Invalid(at, value, problem))
	}
	return errs
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
	if slices.Contains(strings.Split(p, "/"), "..") {
		return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
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
