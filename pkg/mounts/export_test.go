// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"testing"

	"golang.org/x/sys/unix"
)

// WithoutOpenat2 has a test run on a kernel that does not know openat2.
func WithoutOpenat2(t *testing.T) {
	real := openat2
	openat2 = func(int, string, uint64) (int, error) { return -1, unix.ENOSYS }
	t.Cleanup(func() { openat2 = real })
}
