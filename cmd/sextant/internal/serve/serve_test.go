// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"testing"

	"github.com/sextant-node/sextant/pkg/house"
)

// TestServices: the command line runs every service of the house, in its order.
func TestServices(t *testing.T) {
	have := Services()
	for i, want := range house.Services() {
		if have[i].Name != want || have[i].Flags == nil || have[i].Short == "" {
			t.Errorf("service %d: %q is wired, the house has %q", i, have[i].Name, want)
		}
	}
}
