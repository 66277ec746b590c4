// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// PowerCut does to a node what a loss of power does: services, containerd, shims and
// containers end without a word to each other, and of what is on no disk nothing
// stays: sockets, mounts, cgroups, network namespaces, interfaces. Runtime.Restart
// and Up are the start after it. The kernel goes on, and with it the boot ID.
func (n *Node) PowerCut(t testing.TB) {
	t.Helper()
	own := traces{dir: n.dir, id: n.Runtime.CgroupRoot[1:] + "/"}
	// Whoever could see another one end, and say so, is stopped first.
	for _, pid := range append(own.processes(), n.Runtime.PID()) {
		_ = unix.Kill(pid, unix.SIGSTOP) // gone already is as good
	}
	Eventually(t, 4*time.Minute, "every process to end", func(context.Context) error {
		left := own.processes()
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL) // gone already is as good
		}
		if len(left) > 0 {
			return fmt.Errorf("processes %v", left)
		}
		return nil
	})
	n.Runtime.crash(t)
	mounts := own.mounts()
	for i := len(mounts) - 1; i >= 0; i-- {
		if err := unix.Unmount(mounts[i], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Fatalf("unmount %s: %v", mounts[i], err)
		}
	}
	if err := os.RemoveAll(n.Run); err != nil {
		t.Fatal(err)
	}
}
