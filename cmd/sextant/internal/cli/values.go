// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"
)

// timeFlag is a time, given as a duration before now or in RFC 3339.
type timeFlag struct{ t time.Time }

func (f *timeFlag) Type() string { return "duration|time" }

func (f *timeFlag) String() string {
	if f.t.IsZero() {
		return ""
	}
	return f.t.Format(time.RFC3339)
}

func (f *timeFlag) Set(s string) error {
	if d, err := time.ParseDuration(s); err == nil {
		f.t = time.Now().Add(-d)
		return nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return fmt.Errorf("%q is neither a duration nor an RFC 3339 time", s)
	}
	f.t = t
	return nil
}

// lower is an enum's name without its prefix, in lower case.
func lower(name, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(name, prefix))
}
