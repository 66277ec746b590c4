// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Release lets go of the parts of a pod's volumes that Subpath bound. What a
// container keeps busy is detached: it is mounted still where it comes from.
func (h *Host) Release(uid types.UID) error {
	dir, err := realDir(h.Layout.VolumeSubpaths(uid))
	if err != nil || dir == "" {
		return err
	}
	table, err := h.table.Now()
	if err != nil {
		return err
	}
	for _, point := range below(table, dir) {
		if err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			return err
		}
	}
	return nil
}
