// SPDX-License-Identifier: Apache-2.0

package netdisk

import (
	"testing"

	"github.com/sextant-node/sextant/test/frozen"
)

// schema of the volume service's state file.
const schema = 1

// TestFrozen: what released versions kept of disks is read whole.
func TestFrozen(t *testing.T) {
	for version, path := range frozen.Files(t, "disks.db") {
		uses := frozen.Records[use](t, frozen.Open(t, path, schema), "disk-uses")
		raw, files := uses["raw/d"], uses["files/d"]
		if raw.UID != "raw" || raw.Device != "/dev/sdz" || files.Volume != "d" || files.Disk.ISCSI == nil || files.Disk.ISCSI.Target != "iqn.2001-04.example:b" {
			t.Errorf("%s: %+v", version, uses)
		}
	}
	frozen.Shape[use](t, "disk-uses")
}
