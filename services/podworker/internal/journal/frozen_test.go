// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"testing"

	"github.com/sextant-node/sextant/services/podworker/internal/shutdown"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
	"github.com/sextant-node/sextant/test/frozen"
)

// TestFrozen: what released versions journaled is read whole.
func TestFrozen(t *testing.T) {
	for version, path := range frozen.Files(t, FileName) {
		s := frozen.Open(t, path, schema)
		states := map[string]step.State{}
		for uid, r := range frozen.Records[Record](t, s, "pods") {
			states[r.Name] = r.Facts.State
			if p, err := r.Decode(); err != nil || string(p.UID) != uid || r.Facts.Admitted == nil {
				t.Errorf("%s: %s: %v, admitted %v", version, r.Name, err, r.Facts.Admitted)
			}
			if r.Name == "crash" && r.Facts.Containers["web"].Crash.Delay == 0 {
				t.Errorf("%s: no back-off: %+v", version, r.Facts.Containers)
			}
		}
		if len(states) != 3 || states["runs"] != step.Syncing || states["crash"] != step.Syncing || states["ends"] != step.Terminating {
			t.Errorf("%s: %v", version, states)
		}
	}
	frozen.Shape[Record](t, "pods")
}

// TestFrozenShutdown: how far a shutdown had come is read whole.
func TestFrozenShutdown(t *testing.T) {
	for version, path := range frozen.Files(t, "shutdown.db") {
		s := frozen.Records[shutdown.State](t, frozen.Open(t, path, schema), "node")["shutdown"]
		if s.Stage != shutdown.Ending || s.Boot != "first" || s.Since.IsZero() || s.GroupSince.IsZero() {
			t.Errorf("%s: %+v", version, s)
		}
	}
	frozen.Shape[shutdown.State](t, "node")
}
