// SPDX-License-Identifier: Apache-2.0

package nodelog

import (
	"errors"
	"fmt"
	"net/url"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sextant-node/sextant/pkg/pattern"
)

// Limits of a query (kubelet-surface: node log query).
const (
	mostServices   = 4
	longestService = 256
	mostTailLines  = 100000
	// journalTime has a zone: without one journalctl takes the node's.
	journalTime = "2006-1-2 15:4:5 UTC"
)

// notInServices are the characters that no unit name in a query may have.
var notInServices = pattern.Lazy(`[^a-zA-Z\-_.:0-9@]+`)

// Query is a node log query.
type Query struct {
	// Services are units or names of log files; Files are paths below the folder.
	Services []string
	Files    []string
	Options
}

// Options restrict a query of services.
type Options struct {
	Since, Until *time.Time
	TailLines    *int
	// Boot is 0 for this boot, -1 for the one before.
	Boot    *int
	Pattern string
}

func (o Options) empty() bool { return o == Options{} }

// Parse reads a query. It is nil when the request is for a file or folder.
func Parse(values url.Values) (*Query, field.ErrorList) {
	p := &parser{values: values}
	q := &Query{Options: Options{
		Since: optional(p, "sinceTime", parseTime), Until: optional(p, "untilTime", parseTime),
		TailLines: optional(p, "tailLines", strconv.Atoi), Boot: optional(p, "boot", strconv.Atoi), Pattern: values.Get("pattern"),
	}}
	names, asked := values["query"]
	for _, name := range names {
		switch {
		case strings.ContainsAny(name, `/\`):
			q.Files = append(q.Files, name)
		case strings.TrimSpace(name) != "":
			q.Services = append(q.Services, name)
		}
	}
	if asked && len(q.Files)+len(q.Services) == 0 {
		p.errs = append(field.ErrorList{field.Invalid(field.NewPath("query"), names, "may not be empty")}, p.errs...)
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	if q.empty() && len(q.Files)+len(q.Services) == 0 {
		return nil, nil
	}
	return q, nil
}

type parser struct {
	values url.Values
	errs   field.ErrorList
}

// optional parses a value if there is one.
func optional[T any](p *parser, name string, parse func(string) (T, error)) *T {
	text := p.values.Get(name)
	if text == "" {
		return nil
	}
	value, err := parse(text)
	if err != nil {
		p.errs = append(p.errs, field.Invalid(field.NewPath(name), text, err.Error()))
		return nil
	}
	return &value
}

func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		err = errors.New("invalid time format")
	}
	return t, err
}

// Validate lists what is wrong with a query, except for a file that does not exist.
func (q *Query) Validate() field.ErrorList {
	at := field.NewPath("query")
	var errs field.ErrorList
	for _, s := range q.Services {
		if err := validService(s); err != nil {
			errs = append(errs, field.Invalid(at, s, err.Error()))
		}
	}
	if len(q.Services) > mostServices {
		errs = append(errs, field.TooMany(at, len(q.Services), mostServices))
	}
	switch {
	case len(q.Files)+len(q.Services) == 0:
		errs = append(errs, field.Required(at, "cannot be empty with options"))
	case len(q.Files) > 0 && len(q.Services) > 0:
		errs = append(errs, field.Invalid(at, fmt.Sprintf("%v, %v", q.Files, q.Services), "cannot specify a file and service"))
	case len(q.Files) > 1:
		errs = append(errs, field.Invalid(at, q.Files, "cannot specify more than one file"))
	case len(q.Files) == 1 && !q.empty():
		errs = append(errs, field.Invalid(at, q.Files, "cannot specify file with options"))
	}
	if q.Since != nil && q.Until != nil && q.Since.After(*q.Until) {
		errs = append(errs, field.Invalid(field.NewPath("untilTime"), q.Until, "must be after `sinceTime`"))
	}
	if q.Boot != nil && *q.Boot > 0 {
		errs = append(errs, field.Invalid(field.NewPath("boot"), *q.Boot, "must be less than 1"))
	}
	if q.TailLines != nil {
		if said := validation.IsInRange(*q.TailLines, 0, mostTailLines); said != nil {
			errs = append(errs, field.Invalid(field.NewPath("tailLines"), *q.TailLines, said[0]))
		}
	}
	if _, err := syntax.Parse(q.Pattern, syntax.Perl); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("pattern"), q.Pattern, err.Error()))
	}
	return errs
}

func validService(name string) error {
	if len(name) > longestService {
		return fmt.Errorf("length must be less than %d", longestService)
	}
	if notInServices().MatchString(name) {
		return errors.New("input contains unsupported characters")
	}
	return nil
}

// arguments are those of journalctl. What a caller sent follows "=" or is a number.
func (q *Query) arguments(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if q.Since != nil {
		args = append(args, "--since="+q.Since.UTC().Format(journalTime))
	}
	if q.Until != nil {
		args = append(args, "--until="+q.Until.UTC().Format(journalTime))
	}
	if q.TailLines != nil {
		args = append(args, "--pager-end", fmt.Sprintf("--lines=%d", *q.TailLines))
	}
	for _, s := range services {
		args = append(args, "--unit="+s)
	}
	if q.Pattern != "" {
		args = append(args, "--grep="+q.Pattern)
	}
	if q.Boot != nil {
		args = append(args, "--boot", strconv.Itoa(*q.Boot))
	}
	return args
}
