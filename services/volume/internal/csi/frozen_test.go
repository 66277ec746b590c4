// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"testing"

	"github.com/sextant-node/sextant/test/frozen"
)

// schema of the volume service's state file.
const schema = 1

// TestFrozen: what released versions kept of drivers and their volumes is read whole.
func TestFrozen(t *testing.T) {
	for version, path := range frozen.Files(t, "csi.db") {
		s := frozen.Open(t, path, schema)
		uses := frozen.Records[use](t, s, "csi-uses")
		if u := uses["u/pv"]; u.UID != "u" || u.Volume != "data" || u.Handle != "vol-1" || u.Target == "" {
			t.Errorf("%s: uses %+v", version, uses)
		}
		stages := frozen.Records[staged](t, s, "csi-stages")
		if v := stages["csi.example^vol-1"]; v.Driver != "csi.example" || v.Handle != "vol-1" || v.Path == "" {
			t.Errorf("%s: stages %+v", version, stages)
		}
		drivers := frozen.Records[Info](t, s, "csi-drivers")
		if d := drivers["csi.example"]; d.Endpoint == "" || d.Socket == "" || d.NodeID == "" {
			t.Errorf("%s: drivers %+v", version, drivers)
		}
	}
	frozen.Shape[use](t, "csi-uses")
	frozen.Shape[staged](t, "csi-stages")
	frozen.Shape[Info](t, "csi-drivers")
}
