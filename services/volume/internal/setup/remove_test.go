// SPDX-License-Identifier: Apache-2.0

package setup_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/volumetest"
)

func TestRemove(t *testing.T) {
	h, p := host(t), newPod(nil)
	secret := &v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}}
	memory, disk := emptyDir(v1.StorageMediumMemory), emptyDir("")
	memory.Name = "m"
	if _, err := h.Files(p, secret, &content.Set{Files: map[string]content.File{"a": {}}}, noon); err != nil {
		t.Fatal(err)
	}
	if _, err := h.EmptyDir(p, memory, 0); err != nil {
		t.Fatal(err)
	}
	dir, err := h.EmptyDir(p, disk, 0)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "data"), "x")
	if _, err := h.Subpath("u", "v", "c", 0, dir, "data"); err != nil {
		t.Fatal(err)
	}
	// What podworker has there is podworker's to remove.
	write(t, filepath.Join(h.Layout.Pod("u"), "etc-hosts"), "x")
	for range 2 {
		if err := h.Remove("u"); err != nil {
			t.Fatal(err)
		}
	}
	if points := volumetest.Mounts(t, h.Layout.Root); len(points) > 0 {
		t.Errorf("mounts left: %v", points)
	}
	entries, err := os.ReadDir(h.Layout.Pod("u"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "etc-hosts" {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := h.Remove("never-there"); err != nil {
		t.Error(err)
	}
}

func TestRemoveDoesNotGoBehindAMount(t *testing.T) {
	other := t.TempDir()
	write(t, filepath.Join(other, "data"), "precious")
	h, p := host(t), newPod(nil)
	dir, err := h.EmptyDir(p, emptyDir(""), 0)
	if err != nil {
		t.Fatal(err)
	}
	// A mount in use cannot be unmounted.
	inner := filepath.Join(dir, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(other, inner, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(filepath.Join(inner, "data"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Remove("u"); err == nil || !strings.Contains(err.Error(), "unmount "+inner) {
		t.Errorf("a busy mount: %v", err)
	}
	open.Close()
	if err := h.Remove("u"); err != nil {
		t.Error(err)
	}
	if got := read(t, filepath.Join(other, "data")); got != "precious" {
		t.Errorf("what was behind the mount: %q", got)
	}
}

func TestRemoveUnmountsBelowARootThatIsALink(t *testing.T) {
	real := volumetest.Root(t)
	link := filepath.Join(t.TempDir(), "kubelet")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	h := setup.NewHost(link)
	if _, err := h.EmptyDir(newPod(nil), emptyDir(v1.StorageMediumMemory), 0); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove("u"); err != nil {
		t.Error(err)
	}
	if points := volumetest.Mounts(t, real); len(points) > 0 {
		t.Errorf("mounts left: %v", points)
	}
}

// TestRemoveWhereverItIsMounted: where volumes belong, and where nobody expects a mount.
func TestRemoveWhereverItIsMounted(t *testing.T) {
	for name, places := range map[string][]string{
		"where volumes belong":                  {"volumes/kubernetes.io~secret/a", "volumes/kubernetes.io~projected/b"},
		"where a CSI driver's belong":           {"volumes/kubernetes.io~csi/a/mount"},
		"twice on one place":                    {"volumes/kubernetes.io~secret/a", "volumes/kubernetes.io~secret/a"},
		"in a mount":                            {"volumes/kubernetes.io~empty-dir/a", "volumes/kubernetes.io~empty-dir/a/b"},
		"deep in a folder":                      {"volumes/kubernetes.io~empty-dir/a/b/c/d"},
		"a part, and the volume it is of":       {"volumes/kubernetes.io~empty-dir/a", "volume-subpaths/a/c/0"},
		"over all volumes of a type":            {"volumes/kubernetes.io~secret"},
		"over all volumes, and where they were": {"volumes/kubernetes.io~secret/a", "volumes"},
	} {
		t.Run(name, func(t *testing.T) {
			h := host(t)
			files := filepath.Join(h.Layout.Pod("u"), "volumes/kubernetes.io~configmap/c")
			if err := os.MkdirAll(files, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(files, "key"), "x")
			for _, place := range places {
				path := filepath.Join(h.Layout.Pod("u"), place)
				if err := errors.Join(os.MkdirAll(path, 0o755), unix.Mount("tmpfs", path, "tmpfs", 0, "")); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.Remove("u"); err != nil {
				t.Fatal(err)
			}
			if points := volumetest.Mounts(t, h.Layout.Root); len(points) > 0 {
				t.Errorf("mounts left: %v", points)
			}
			if entries, err := os.ReadDir(h.Layout.Pod("u")); err != nil || len(entries) > 0 {
				t.Errorf("left: %v, %v", entries, err)
			}
		})
	}
}

// TestRemoveWhileBinding: a part that is bound while its pod's volumes go is not removed
// with what is behind it.
func TestRemoveWhileBinding(t *testing.T) {
	bound := 0
	for range 100 {
		h, volume := host(t), t.TempDir()
		precious := filepath.Join(volume, "part", "precious")
		if err := os.Mkdir(filepath.Dir(precious), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, precious, "42")
		for i := range 20 { // there is something to look through
			if err := os.MkdirAll(h.Layout.VolumeSubpath("u", "other", "c", i), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		begin := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			<-begin
			for i := range 10 {
				if _, err := h.Subpath("u", "v", "c", i, volume, "part"); err == nil {
					bound++
				}
			}
		})
		both.Go(func() {
			<-begin
			h.Remove("u") //nolint:errcheck // it may meet a mount
		})
		close(begin)
		both.Wait()
		if _, err := os.Stat(precious); err != nil {
			t.Fatalf("what is behind a mount was removed: %v", err)
		}
		if err := h.Remove("u"); err != nil {
			t.Fatal(err)
		}
	}
	if bound == 0 {
		t.Error("no race: nothing was bound")
	}
}

// TestRemoveLeavesWhatItDoesNotKnow: a target has nothing in it of its own. What is found
// there nevertheless is kept, and said.
func TestRemoveLeavesWhatItDoesNotKnow(t *testing.T) {
	h := host(t)
	stray := filepath.Join(h.Layout.VolumeSubpath("u", "v", "c", 0), "stray")
	if err := os.MkdirAll(stray, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove("u"); !errors.Is(err, unix.ENOTEMPTY) || !strings.Contains(err.Error(), filepath.Dir(stray)) {
		t.Errorf("error %v, want that the target is not empty", err)
	}
	if _, err := os.Stat(stray); err != nil {
		t.Error(err)
	}
}

// TestRemoveWhatAContainerMade: names without number, folders nested more deeply than a
// path is long, and bytes that are no text.
func TestRemoveWhatAContainerMade(t *testing.T) {
	h := host(t)
	dir, err := h.EmptyDir(newPod(nil), emptyDir(""), 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		write(t, filepath.Join(dir, fmt.Sprintf("\xff%d\n", i)), "")
	}
	nest(t, dir, 2100)
	if err := h.Remove("u"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(h.Layout.Volumes("u")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

// BenchmarkRemove removes the volumes of a pod with two volumes in memory, on a node that
// has so many mounts besides.
func BenchmarkRemove(b *testing.B) {
	h, have := setup.NewHost(volumetest.Root(b)), 0
	p := newPod(nil)
	for _, n := range []int{0, 2000} {
		for ; have < n; have++ {
			dir := h.Dir("other", volumetype.EmptyDir, fmt.Sprint(have))
			if err := errors.Join(os.MkdirAll(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "")); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("beside %d mounts", n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				for _, name := range []string{"a", "b"} {
					v := emptyDir(v1.StorageMediumMemory)
					v.Name = name
					if _, err := h.EmptyDir(p, v, 0); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				if err := h.Remove("u"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
