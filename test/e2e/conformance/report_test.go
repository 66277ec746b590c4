// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"slices"
	"strings"
	"testing"
)

func TestChosen(t *testing.T) {
	list := chosen()
	if len(list) < 10 || len(slices.Compact(slices.Sorted(slices.Values(list)))) != len(list) {
		t.Errorf("fast.txt is too short or names a test twice: %q", list)
	}
	for _, spec := range list {
		if !strings.Contains(spec, "[NodeConformance]") {
			t.Errorf("not a test of node conformance: %s", spec)
		}
	}
}
