// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"cmp"

	"golang.org/x/sys/unix"
)

// BlockSize is what the blocks of a file system are counted in, in bytes. Bsize is the size
// that is best read at a time; it counts only where the file system gives no other (statfs(2)).
func BlockSize(s *unix.Statfs_t) int64 { return cmp.Or(s.Frsize, s.Bsize) }
