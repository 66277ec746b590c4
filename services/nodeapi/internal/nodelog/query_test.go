// SPDX-License-Identifier: Apache-2.0

package nodelog

import (
	"net/url"
	"strings"
	"testing"
)

// TestQueries is the kubelet's table of what is asked how: arguments of
// journalctl, a file, or an error's text.
func TestQueries(t *testing.T) {
	long := strings.Repeat("a", 257)
	for query, want := range map[string]string{
		"":                "none",
		"other=1":         "none",
		"query=":          "parse query: Invalid value: [\"\"]: may not be empty",
		"query=%20":       "parse query: Invalid value: [\" \"]: may not be empty",
		"query=/x.log":    "file /x.log",
		"query=a/../b":    "file a/../b",
		`query=a\b`:       `file a\b`,
		"query=kubelet":   "--utc --no-pager --output=short-precise --unit=kubelet",
		"query=a&query=b": "--utc --no-pager --output=short-precise --unit=a --unit=b",
		"query=a&query=":  "--utc --no-pager --output=short-precise --unit=a",
		"query=a@b.c:1-_": "--utc --no-pager --output=short-precise --unit=a@b.c:1-_",
		"query=-x":        "--utc --no-pager --output=short-precise --unit=-x",
		"query=a&sinceTime=2026-01-02T05:04:05%2B02:00&untilTime=2026-11-12T13:14:15Z": "--utc --no-pager --output=short-precise --since=2026-1-2 03:4:5 UTC --until=2026-11-12 13:14:15 UTC --unit=a",
		"query=a&tailLines=0&boot=-1&pattern=x%20--help":                               "--utc --no-pager --output=short-precise --pager-end --lines=0 --unit=a --grep=x --help --boot -1",
		"query=a&tailLines=100000&boot=0":                                              "--utc --no-pager --output=short-precise --pager-end --lines=100000 --unit=a --boot 0",

		"query=a&sinceTime=yesterday": "parse sinceTime: Invalid value: \"yesterday\": invalid time format",
		"query=a&untilTime=1":         "parse untilTime: Invalid value: \"1\": invalid time format",
		"query=a&tailLines=x":         "parse tailLines: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax",
		"query=a&boot=x":              "parse boot: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax",

		"tailLines=1":               "query: Required value: cannot be empty with options",
		"pattern=x":                 "query: Required value: cannot be empty with options",
		"query=a;b":                 "none", // not a query string at all
		"query=a%3Bb":               "query: Invalid value: \"a;b\": input contains unsupported characters",
		"query=a%20--vacuum-size=1": "query: Invalid value: \"a --vacuum-size=1\": input contains unsupported characters",
		"query=$(id)":               "query: Invalid value: \"$(id)\": input contains unsupported characters",
		"query=a%0Ab":               "query: Invalid value: \"a\\nb\": input contains unsupported characters",
		"query=" + long:             "query: Invalid value: \"" + long + "\": length must be less than 256",
		"query=" + long[:256]:       "--utc --no-pager --output=short-precise --unit=" + long[:256],
		"query=a&query=b&query=c&query=d&query=e": "query: Too many: 5: must have at most 4 items",
		"query=/a&query=b":                        "query: Invalid value: \"[/a], [b]\": cannot specify a file and service",
		"query=/a&query=/b":                       "query: Invalid value: [\"/a\",\"/b\"]: cannot specify more than one file",
		"query=/a&tailLines=1":                    "query: Invalid value: [\"/a\"]: cannot specify file with options",
		"query=a&tailLines=-1":                    "tailLines: Invalid value: -1: must be between 0 and 100000, inclusive",
		"query=a&tailLines=100001":                "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive",
		"query=a&boot=1":                          "boot: Invalid value: 1: must be less than 1",
		"query=a&pattern=(":                       "pattern: Invalid value: \"(\": error parsing regexp: missing closing ): `(`",
		"query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z": "must be after `sinceTime`",
	} {
		values, _ := url.ParseQuery(query) // what is wrong is left out, as by net/http
		if got := told(values); got != want && !(strings.HasPrefix(want, "must") && strings.HasSuffix(got, want)) {
			t.Errorf("%s\n got %s\nwant %s", query, got, want)
		}
	}
}

func told(values url.Values) string {
	q, errs := Parse(values)
	switch {
	case len(errs) > 0:
		return "parse " + errs.ToAggregate().Error()
	case q == nil:
		return "none"
	}
	if errs := q.Validate(); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	if len(q.Files) > 0 {
		return "file " + q.Files[0]
	}
	return strings.Join(q.arguments(q.Services), " ")
}

// FuzzQuery: whatever is asked, a caller's words reach journalctl only behind
// "=", or as a number.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"query=a&boot=-1", "query=--help&pattern=-o", "query=/a", "tailLines=1&sinceTime=2026-01-02T00:00:00Z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		q, errs := Parse(values)
		if len(errs) > 0 || q == nil || len(q.Validate()) > 0 {
			return
		}
		if len(q.Services) > mostServices || len(q.Files) > 1 || len(q.Files)+len(q.Services) == 0 {
			t.Fatalf("%+v was let through", q)
		}
		for i, arg := range q.arguments(q.Services) {
			known := i < 3 || arg == "--pager-end" || arg == "--boot"
			for _, option := range []string{"--since=", "--until=", "--lines=", "--unit=", "--grep="} {
				known = known || strings.HasPrefix(arg, option)
			}
			if !known && strings.Trim(arg, "-0123456789") != "" {
				t.Fatalf("argument %q", arg)
			}
		}
	})
}
