// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRestarts: what needs a restart is a field, and is named when it changes.
func TestRestarts(t *testing.T) {
	var paths []string
	for _, l := range leaves() {
		paths = append(paths, l.path)
	}
	for field := range restarts {
		if !slices.Contains(paths, field) {
			t.Errorf("there is no field %s", field)
		}
	}
	got := WithRestarts([]string{"maxPods", "podLogsDir", "node.ips"})
	want := []string{"maxPods", "podLogsDir (needs a restart of prepare, podworker)", "node.ips (needs a restart of prepare, all services)"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
