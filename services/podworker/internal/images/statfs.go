// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/mounts"
)

// StatFS measures the file system a path lies on. A folder of the runtime's that
// may not be entered is on the file system of the nearest folder above that may,
// unless there is a mount in between.
func StatFS(path string) (Disk, error) {
	for {
		var s unix.Statfs_t
		err := unix.Statfs(path, &s)
		switch {
		case err == nil:
			size := mounts.BlockSize(&s)
			return Disk{Capacity: int64(s.Blocks) * size, Available: int64(s.Bavail) * size}, nil
		case !errors.Is(err, fs.ErrPermission) || path == "/" || path == ".":
			return Disk{}, fmt.Errorf("statfs %s: %w", path, err)
		}
		path = filepath.Dir(path)
	}
}

// human writes a size for people: 1.5 GiB.
func human(bytes int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	size := float64(bytes) / 1024
	unit := 0
	for size >= 1024 && unit < len(units)-1 {
		size /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}
