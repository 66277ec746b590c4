// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Source says where a value came from. The zero value means a built-in default.
type Source struct {
	// File is the path of the configuration file, as given.
	File string `json:"file,omitempty"`
	// Line is 1-based; 0 when it is not known.
	Line int `json:"line,omitempty"`
	// Flag is the name of a command-line flag without the leading dashes.
	Flag string `json:"flag,omitempty"`
}

// String returns "file:line", "--flag" or "default".
func (s Source) String() string {
	switch {
	case s.Flag != "":
		return "--" + s.Flag
	case s.File != "" && s.Line > 0:
		return fmt.Sprintf("%s:%d", s.File, s.Line)
	case s.File != "":
		return s.File
	default:
		return "default"
	}
}

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	// Source is the file and line or the flag that set the value.
	Source Source
	// Field is the path of the field, such as "evictionHard[memory.available]",
	// or empty when the whole file is at fault.
	Field string
	// Detail says what is wrong and what would be right.
	Detail string
	// Err is the cause, if there is one beyond Detail.
	Err error
}

// Error returns "source: field: detail".
func (p *Problem) Error() string {
	parts := []string{p.Source.String()}
	if p.Field != "" && p.Field != "--"+p.Source.Flag {
		parts = append(parts, p.Field)
	}
	if p.Detail != "" {
		parts = append(parts, p.Detail)
	}
	if p.Err != nil {
		parts = append(parts, p.Err.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// Problems returns the problems an error of this package carries, in the order
// they were found; nil when it carries none.
func Problems(err error) []*Problem {
	if err == nil {
		return nil
	}
	if p, ok := err.(*Problem); ok {
		return []*Problem{p}
	}
	var all []*Problem
	if m, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range m.Unwrap() {
			all = append(all, Problems(e)...)
		}
		return all
	}
	return Problems(errors.Unwrap(err))
}

// maxProblems is how many problems one error lists. More than this many almost always
// have a single cause, such as the wrong file.
const maxProblems = 50

// join turns problems into one error, nil when there are none.
func join(ps []*Problem) error {
	if rest := len(ps) - maxProblems; rest > 0 {
		last := *ps[maxProblems]
		last.Detail += fmt.Sprintf(" (and %d more problems)", rest-1)
		ps = append(ps[:maxProblems:maxProblems], &last)
	}
	errs := make([]error, 0, len(ps))
	for _, p := range ps {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

// problemsOf attaches to each validation error the source of its field.
func problemsOf(errs field.ErrorList, origins Origins) []*Problem {
	ps := make([]*Problem, 0, len(errs))
	for _, e := range errs {
		ps = append(ps, &Problem{Source: origins.Of(e.Field), Field: e.Field, Detail: clipTo(e.ErrorBody(), 500)})
	}
	return ps
}
