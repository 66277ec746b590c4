// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/mounts"
)

// The mount tools of the system are of no use here: they refuse every caller
// that is not root, whatever its capabilities.

// ensureMount mounts a file system without a device, unless something is
// mounted there.
func ensureMount(dir, fstype, options string) error {
	mounted, err := mounts.On(dir)
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount(fstype, dir, fstype, 0, options); err != nil {
		return fmt.Errorf("mount %s (%s): %w", fstype, options, err)
	}
	return nil
}

// ensureTmpfs mounts memory that is root's, never to be swapped out where the
// kernel can promise that (noswap, Linux 6.4). size bounds it; zero for no bound.
func ensureTmpfs(dir, options string, size int64) error {
	options += ",uid=0,gid=0"
	if size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	if !withoutNoswap.Load() {
		err := ensureMount(dir, "tmpfs", options+",noswap")
		if !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	err := ensureMount(dir, "tmpfs", options)
	if err == nil {
		withoutNoswap.Store(true)
	}
	return err
}

// withoutNoswap: the kernel has refused noswap once. It writes to its log each time it does.
var withoutNoswap atomic.Bool
