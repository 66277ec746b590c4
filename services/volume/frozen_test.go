// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"testing"

	"github.com/sextant-node/sextant/test/frozen"
)

// TestFrozen: intents that released versions kept are read whole.
func TestFrozen(t *testing.T) {
	for version, path := range frozen.Files(t, "state.db") {
		kept := frozen.Records[intent](t, frozen.Open(t, path, schema), "intents")
		if a, b := kept["stays"], kept["goes"]; len(a.Pod) == 0 || a.Withdrawing || !b.Withdrawing {
			t.Errorf("%s: %+v, %+v", version, a, b)
		}
	}
	frozen.Shape[intent](t, "intents")
}
