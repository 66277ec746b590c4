// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// unmountBelow removes every mount at or below dir, the deepest first. A mount
// that is still in use is detached, so that it goes with its last user.
func unmountBelow(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var last error
	err := poll(ctx, func() bool {
		points, err := mountPointsBelow(dir)
		if err != nil {
			last = err
			return false
		}
		for _, p := range points {
			if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
				last = fmt.Errorf("unmount %s: %w", p, err)
			}
		}
		return len(points) == 0
	})
	if err != nil {
		return fmt.Errorf("mounts remain below %s: %w (%w)", dir, err, last)
	}
	return nil
}

func mountPointsBelow(dir string) ([]string, error) {
	infos, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	var points []string
	for _, m := range infos {
		if m.MountPoint == dir || strings.HasPrefix(m.MountPoint, dir+"/") {
			points = append(points, m.MountPoint)
		}
	}
	sort.Slice(points, func(i, j int) bool { return len(points[i]) > len(points[j]) })
	return points, nil
}
