package setup

import (
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Give gives a volume to a group (v1.PodSecurityContext.FSGroup); with onMismatch
// only if its root is not the group's already (v1.FSGroupChangeOnRootMismatch).
func (h *Host) Give(path string, group int, onMismatch bool) error {
	if onMismatch {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if isOf(info, group) {
			return nil
		}
	}
	return giveTo(path, group)
}

// Release lets go of the parts of a pod's volumes that Subpath bound. What a
// container keeps busy is detached: it is mounted still where it comes from.
func (h *Host) Release(uid types.UID) error {
	dir, err := realDir(h.Layout.VolumeSubpaths(uid))
	if err != nil || dir == "" {
		return err
	}
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, point := range points {
		if err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			return err
		}
	}
	return nil
}
