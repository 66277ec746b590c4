// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"testing"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/services/supervisor"
)

// TestPlanToEnd: a node that does not run since a boot is there to be purged; the state
// folder of another node is not.
func TestPlanToEnd(t *testing.T) {
	paths := house.Paths{Run: t.TempDir(), State: t.TempDir()}
	plan := &supervisor.Plan{Run: paths.Run, State: paths.State, Units: true}
	if _, err := planToEnd(paths, true); !errors.Is(err, supervisor.ErrNoNode) {
		t.Errorf("no node: %v", err)
	}
	if err := plan.Keep(); err != nil {
		t.Fatal(err)
	}
	if got, err := planToEnd(paths, true); err != nil || got.State != plan.State || !got.Units {
		t.Errorf("after a boot: %+v, %v", got, err)
	}
	if _, err := planToEnd(paths, false); !errors.Is(err, supervisor.ErrNoNode) {
		t.Errorf("not to be purged: %v", err)
	}
	if _, err := planToEnd(house.Paths{Run: t.TempDir(), State: paths.State}, true); !errors.Is(err, supervisor.ErrNoNode) {
		t.Errorf("another node: %v", err)
	}
	if err := os.WriteFile(paths.State+"/node.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := planToEnd(paths, true); err == nil || errors.Is(err, supervisor.ErrNoNode) {
		t.Errorf("a damaged plan: %v", err)
	}
}
