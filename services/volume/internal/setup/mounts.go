package setup

import (
	"errors"
	"fmt"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// The mount tools of the system are of no use here: they refuse every caller
// that is not root, whatever its capabilities.

// ensureMount mounts a file system without a device, unless something is
// mounted there.
func ensureMount(dir, fstype, options string) error {
	there, err := mounted(dir)
	if err != nil || there {
		return err
	}
	if err := unix.Mount(fstype, dir, fstype, 0, options); err != nil {
		return fmt.Errorf("mount %s (%s): %w", fstype, options, err)
	}
	return nil
}

// ensureTmpfs mounts memory that is root's, never to be swapped out where the
// kernel can promise that (noswap, Linux 6.4).
func ensureTmpfs(dir, options string) error {
	options += ",uid=0,gid=0"
	err := ensureMount(dir, "tmpfs", options+",noswap")
	if errors.Is(err, unix.EINVAL) {
		return ensureMount(dir, "tmpfs", options)
	}
	return err
}

func mounted(dir string) (bool, error) {
	there, err := mountinfo.Mounted(dir)
	if err != nil {
		return false, fmt.Errorf("is %s a mount point: %w", dir, err)
	}
	return there, nil
}

// mountsBelow lists mount points below a folder, the newest first.
func mountsBelow(dir string) ([]string, error) {
	table, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("mount table: %w", err)
	}
	var points []string
	for _, m := range table {
		points = append(points, m.Mountpoint)
	}
	slices.Reverse(points)
	return points, nil
}

func unmount(point string) error {
	if err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", point, err)
	}
	return nil
}
