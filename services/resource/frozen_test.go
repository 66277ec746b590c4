// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"testing"

	"github.com/sextant-node/sextant/test/frozen"
)

// TestFrozen: allocations that released versions kept are read whole.
func TestFrozen(t *testing.T) {
	for version, path := range frozen.Files(t, "state.db") {
		kept := frozen.Records[allocation](t, frozen.Open(t, path, schema), "allocations")
		if a, b := kept["kept"], kept["leaving"]; len(a.Pod) == 0 || len(a.Cgroup) == 0 || a.Releasing || !b.Releasing {
			t.Errorf("%s: %+v, %+v", version, a, b)
		}
	}
	frozen.Shape[allocation](t, "allocations")
}
