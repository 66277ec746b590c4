// SPDX-License-Identifier: Apache-2.0

package mounts_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/mounts"
)

func points(t testing.TB, table *mounts.Table) []string {
	t.Helper()
	all, err := table.Now()
	if err != nil {
		t.Error(err)
	}
	var list []string
	for _, m := range all {
		list = append(list, m.Mountpoint)
	}
	return list
}

// TestTable: whoever changes the table sees that in it, whatever others do at the same
// time.
func TestTable(t *testing.T) {
	var table mounts.Table
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 8 {
		point := mkdir(t, dir, fmt.Sprint(i))
		all.Go(func() {
			for range 20 {
				if err := unix.Mount("tmpfs", point, "tmpfs", 0, ""); err != nil {
					t.Error(err)
					return
				}
				if !slices.Contains(points(t, &table), point) {
					t.Errorf("%s is mounted, and not in the table", point)
				}
				if err := unix.Unmount(point, 0); err != nil {
					t.Error(err)
					return
				}
				if slices.Contains(points(t, &table), point) {
					t.Errorf("%s is unmounted, and in the table", point)
				}
			}
		})
	}
	all.Wait()
}

// TestTableIsReadOnce: what has not changed is not read again.
func TestTableIsReadOnce(t *testing.T) {
	private(t)
	var table mounts.Table
	first, err := table.Now()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if next, err := table.Now(); err != nil || &next[0] != &first[0] {
			t.Errorf("read again: %v", err)
		}
	}
	mount(t, "tmpfs", mkdir(t, t.TempDir(), "new"), "tmpfs", 0)
	if next, err := table.Now(); err != nil || len(next) != len(first)+1 {
		t.Errorf("%d mounts after a new one, were %d: %v", len(next), len(first), err)
	}
}

// BenchmarkTable looks at the table with so many mounts on the node: as the file is read
// each time, and as it is kept.
func BenchmarkTable(b *testing.B) {
	dir, have := b.TempDir(), 0
	for _, n := range []int{1000, 6000} {
		for ; have < n; have++ {
			mount(b, "tmpfs", mkdir(b, dir, "pods", fmt.Sprintf("0f0e0d0c-0b0a-4900-8080-%012d", have), "volumes/kubernetes.io~projected/kube-api-access-abcde"), "tmpfs", 0)
		}
		b.Run(fmt.Sprintf("file of %d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Join(dir, "none"))); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("table of %d", n), func(b *testing.B) {
			var table mounts.Table
			for b.Loop() {
				if _, err := table.Now(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// private gives a test a mount namespace of its own, in which nothing else mounts.
func private(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}
