// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"testing"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/test/frozen"
)

// TestFrozen: what released versions kept is read whole.
func TestFrozen(t *testing.T) {
	for version, path := range frozen.Files(t, "status.db") {
		s := frozen.Open(t, path, schema)
		if p := frozen.Records[Pod](t, s, "pods")["u1"]; p.Name != "job" || len(p.Status) == 0 {
			t.Errorf("%s: pod %+v", version, p)
		}
		if n := frozen.Records[Node](t, s, "node")["n1"]; len(n.Status) == 0 {
			t.Errorf("%s: node %+v", version, n)
		}
		if c := frozen.Records[feed.Revision](t, s, "cursors")["podworker.events"]; c.N != 1 || c.Epoch == "" {
			t.Errorf("%s: cursor %+v", version, c)
		}
		if c := frozen.Records[[]byte](t, s, "config"); len(c["kubelet"]) == 0 || len(c["credential"]) == 0 {
			t.Errorf("%s: %d configurations", version, len(c))
		}
	}
	frozen.Shape[Pod](t, "pods")
	frozen.Shape[Node](t, "node")
	frozen.Shape[feed.Revision](t, "cursors")
	frozen.Shape[[]byte](t, "config")
}
