// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strings"
	"testing"
	"time"
)

func TestRestored(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct{ at, want time.Time }{
		"none":       {},
		"the past":   {now.Add(-time.Hour), now.Add(-time.Hour)},
		"the future": {now.Add(time.Hour), now},
	} {
		got := restored(tc.at.Round(0), now)
		if !got.Equal(tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		if name != "none" && !strings.Contains(got.String(), " m=") { // as String shows it
			t.Errorf("%s: no monotonic time", name)
		}
	}
}
